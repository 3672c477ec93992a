"""The thoughts in a response, in the syntax of a chat template: `find_thinking`.

Models mark their thoughts in many ways: ``<think>...</think>``, ``[THINK]...[/THINK]``, or
``<|channel|>analysis<|message|>...<|end|>``. `ThinkingFormat.rewrite` turns each into
``<think>...</think>``, the one form that environments, tools, and wrappers know; see
`gem_core.without_thoughts`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from gem_chat._chat_templates import THOUGHT_FIELDS
from gem_chat._probes import LAST_ANSWERS, MESSAGES, QUESTIONS, THOUGHT, common_length, system_messages
from gem_chat._template import Render
from gem_core._thoughts import THOUGHT_CLOSE, THOUGHT_OPEN
from gem_core.errors import UnsupportedTemplate

_MARKER = re.compile(r"<[^<>\s]{1,60}>|\[/?[A-Z][A-Z_]{1,40}\]|<\|[^<>|]{1,60}\|>")
"""A marker that is spelled like one, whether it is a special token or not."""

_DUMPED = re.compile(r"""['"]type['"]""")
"""Content parts that a template writes as they are instead of their texts."""
_CALL: dict[str, Any] = {
    "type": "function",
    "id": "call00001",
    "function": {"name": "neutral_tool_5517", "arguments": {"key": "value"}},
}


@dataclass(frozen=True)
class ThinkingFormat:
    """How a template writes the thoughts before an answer.

    Attributes:
        open: Text before a thought.
        close: Text after it.
        again: Text with which the next part of the same answer begins, such as ``<|start|>assistant``.
        answer: Text before the answer itself, such as ``<|channel|>final<|message|>``.
        prefilled: Whether the opening of an answer in the prompt ends with `open`, so that a response begins
            inside a thought.
    """

    open: str = THOUGHT_OPEN
    close: str = THOUGHT_CLOSE
    again: str = ""
    answer: str = ""
    prefilled: bool = False

    def rewrite(self, text: str) -> str:
        """Return a response with its thoughts as ``<think>...</think>`` and without the marks of its answer.

        A thought that is not closed lasts until the end. Further marks of the model's own format, such as
        those of tool calls, stay.
        """
        if self.prefilled and not text.lstrip().startswith(self.open):
            text = self.open + text
        if (self.open, self.close, self.again, self.answer) == (THOUGHT_OPEN, THOUGHT_CLOSE, "", ""):
            return text
        pieces: list[str] = []
        place = 0
        while (start := text.find(self.open, place)) >= 0:
            self._add(pieces, self._plain(text[place:start], first=place == 0))
            start += len(self.open)
            end = text.find(self.close, start)
            thought = text[start:] if end < 0 else text[start:end]
            place = len(text) if end < 0 else self._after_thought(text, end + len(self.close))
            if thought.strip():
                for tag in (THOUGHT_OPEN, THOUGHT_CLOSE):  # spelled, and not the end of the thought
                    thought = thought.replace(tag, f"{tag[0]} {tag[1:]}")
                self._add(pieces, f"{THOUGHT_OPEN}{thought}{'' if end < 0 else THOUGHT_CLOSE}")
        self._add(pieces, self._plain(text[place:], first=place == 0), own_line=False)
        return "".join(pieces)

    @staticmethod
    def _add(pieces: list[str], text: str, *, own_line: bool = True) -> None:
        """Add a piece; a thought begins a line."""
        if own_line and text.startswith(THOUGHT_OPEN) and pieces and not pieces[-1].endswith("\n"):
            pieces.append("\n")
        if text:
            pieces.append(text)

    def _after_thought(self, text: str, place: int) -> int:
        """Return the position after the marks between a thought and the next part."""
        for mark in (self.again, self.answer):
            begin = place + len(text[place:]) - len(text[place:].lstrip())
            if mark and text.startswith(mark, begin):
                place = begin + len(mark)
        return place

    def _plain(self, text: str, *, first: bool) -> str:
        """Return text outside of thoughts without the marks of an answer."""
        if self.answer and first and text.lstrip().startswith(self.answer):
            text = text.lstrip().removeprefix(self.answer)
        if self.answer and self.again:
            text = text.replace(f"{self.close}{self.again}{self.answer}", "\n")
        return text


def find_thinking(render: Render, *, system_prompt: str | None = None) -> ThinkingFormat:
    """Return how a template writes thoughts; ``<think>...</think>`` if it does not show any.

    A thought in the fields of an assistant message is rendered, and the text around it is compared with the
    opening of an answer and with an answer without thoughts.

    Args:
        render: The template.
        system_prompt: First message of each conversation; None for no system message.
    """
    question = [*system_messages(system_prompt), {"role": "user", "content": QUESTIONS[0]}]
    answer: dict[str, Any] = {"role": "assistant", "content": LAST_ANSWERS[0]}
    in_parts = [{"type": "thinking", "thinking": THOUGHT}, {"type": "text", "text": LAST_ANSWERS[0]}]

    def shown(*messages: dict[str, Any], generate: bool = False) -> str:
        """Return the text after the question; empty if the template fails."""
        try:
            text = render([*question, *messages], generate=generate)
        except UnsupportedTemplate:
            return ""
        return text.partition(QUESTIONS[0])[2]

    opening = shown(generate=True)
    fields = dict.fromkeys(THOUGHT_FIELDS, THOUGHT)
    for thinking, end in (
        (answer | fields, LAST_ANSWERS[0]),
        (answer | {"content": in_parts}, LAST_ANSWERS[0]),
        (answer | fields | {"content": "", "tool_calls": [_CALL]}, _CALL["function"]["name"]),
    ):
        before, found, rest = shown(thinking).partition(THOUGHT)
        between, shows_answer, _ = rest.partition(end)
        if found and shows_answer and not _DUMPED.search(between):
            break
    else:
        lead = _lead(shown(answer).partition(LAST_ANSWERS[0])[0], opening)
        return ThinkingFormat(answer=lead, prefilled=opening.rstrip().endswith(THOUGHT_OPEN))
    texts = (shown(answer), shown(answer, {"role": "user", "content": MESSAGES[1]}))
    plain, *earlier = [text.partition(LAST_ANSWERS[0])[0] for text in texts if LAST_ANSWERS[0] in text] or [
        ""
    ]
    head = before[: _shared(before, [opening, plain, *earlier])]
    mark = before[len(head) :].strip()
    if not mark:  # each answer begins with the opening of a thought
        rest = opening[len(head) :].strip()
        closed = rest.startswith(_first_marker(between.strip()))
        mark = _last_mark(head, between.strip()) if closed or not rest else rest
        head = head.rstrip().removesuffix(mark)
    if not mark:
        return ThinkingFormat()
    close, again, last = _parts(between.strip(), mark, head, plain[len(head) :])
    if not close:
        return ThinkingFormat()
    lead = _lead(plain, opening)
    last = last or ("" if mark in lead or close in lead else lead)
    return ThinkingFormat(mark, close, again, last, opening.rstrip().endswith(mark))


def _shared(text: str, others: list[str]) -> int:
    """Return the length of the beginning that all texts share, which does not end inside a marker."""
    length = min(common_length(text, other) for other in others)
    for marker in _MARKER.finditer(text):
        if marker.start() < length < marker.end():
            return marker.start()
    return length


def _lead(plain: str, opening: str) -> str:
    """Return the marks that an answer without thoughts has after its opening in the prompt."""
    lead = plain[_shared(plain, [opening]) :].strip()
    markers = [*_MARKER.finditer(lead)]
    whole = bool(markers) and markers[0].start() == 0 and markers[-1].end() == len(lead)
    return lead if whole and THOUGHT_CLOSE not in lead else ""


def _parts(between: str, mark: str, head: str, plain: str) -> tuple[str, str, str]:
    """Split the text between a thought and its answer.

    Returns:
        The end of the thought, the opening of the next part, and the mark of the answer.
    """
    first = _MARKER.search(between)
    if first is None:
        return between, "", ""
    close = between[: first.end()]
    named = mark[len(_first_marker(mark)) :]  # <|close|>think<|sep|> after <|open|>think<|sep|>
    if named and between.startswith(named, len(close)):
        close += named
    rest = between[len(close) :].strip()
    again = ""
    for marker in _MARKER.finditer(head):
        if rest.startswith(head[marker.start() :].strip()):
            again = head[marker.start() :].strip()
            break
    last = rest[len(again) :].strip()
    return close, again, last if last and plain.rstrip().endswith(last) else ""


def _last_mark(head: str, between: str) -> str:
    """Return the marks at the end of `head` that open a thought, which the start of `between` closes."""
    starts = [marker.start() for marker in _MARKER.finditer(head)]
    for start in reversed(starts):
        mark = head[start:].strip()
        named = mark[len(_first_marker(mark)) :]
        if named and between.startswith(named, len(_first_marker(between))):
            return mark
    return head[starts[-1] :].strip() if starts else ""


def _first_marker(text: str) -> str:
    marker = _MARKER.match(text)
    return marker.group() if marker else text
