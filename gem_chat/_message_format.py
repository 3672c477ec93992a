"""The text that a chat template produces for a single message, determined by probing the template.

A token-exact context needs the text between two responses: the end of the assistant's turn, the
environment's message, and the opening of the next assistant turn. `MessageFormat.between` returns that text
for one message. It renders a short neutral conversation and returns the text after the neutral answer, so the
cost does not grow with the number of turns.

The result is correct only for templates whose messages do not depend on each other. The constructor of
`MessageFormat` therefore probes the template with conversations of different lengths and contents, and raises
`UnsupportedTemplate` with the reason if they do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gem_chat._answer_end import find_answer_end
from gem_chat._probes import (
    ADVICE_APPEND,
    ANSWERS,
    LAST_ANSWERS,
    MESSAGES,
    QUESTIONS,
    THOUGHT,
    after,
    clipped,
    common_length,
    difference,
    system_messages,
)
from gem_chat._template import Messages, Render
from gem_core.errors import UnsupportedTemplate

_LENGTHS = (1, 2, 3, 9)
_THOUGHT = f"<think>\n{THOUGHT}\n</think>\n\n"


class MessageFormat:
    """The text that a template puts between two responses for a message of one role.

    Args:
        render: The template.
        encode: Function from text to token ids, without added tokens.
        decode: Function from token ids to text that keeps special tokens.
        atomic_ids: Ids that the encoder never merges with adjacent tokens.
        role: Role of the message.
        system_prompt: First message of each conversation; None for no system message.
        placeholder: Text that the template must write for an image; None if there are no images.

    Attributes:
        end: How the template ends the answer before such a message.

    Raises:
        UnsupportedTemplate: The text depends on the rest of the conversation, or can be empty.
    """

    def __init__(
        self,
        render: Render,
        encode: Callable[[str], list[int]],
        decode: Callable[[list[int]], str],
        atomic_ids: frozenset[int],
        *,
        role: str = "user",
        system_prompt: str | None = None,
        placeholder: str | None = None,
    ) -> None:
        self._render = render
        self._encode = encode
        self._role = role
        self._system = system_messages(system_prompt)
        self._neutral = self._history(1)
        self._reject_dependence()
        self._reject_clock()
        self._reject_changing_history()
        self.end = find_answer_end(render, encode, decode, atomic_ids, role=role, system_prompt=system_prompt)
        self._reject_nothing_between()
        if placeholder is not None:
            self._reject_varying_images(placeholder)

    def between(self, message: str | list[dict[str, str]]) -> str:
        """Return the text from the end of one response to the start of the next, including `message`."""
        return self._after_history(self._neutral, message)

    def _history(self, turns: int, *, shift: int = 0, reasoning: str = "") -> list[dict[str, Any]]:
        """Return a neutral conversation of alternating questions and answers."""
        messages = list(self._system)
        for number in range(turns):
            question = QUESTIONS[(number + shift) % len(QUESTIONS)]
            answer = ANSWERS[(number + shift) % len(ANSWERS)]
            messages.append({"role": "user", "content": question})
            messages.append({"role": "assistant", "content": reasoning + answer})
        messages[-1]["content"] = reasoning + LAST_ANSWERS[shift % len(LAST_ANSWERS)]
        return messages

    def _after_history(
        self,
        history: list[dict[str, Any]],
        message: str | list[dict[str, str]],
        follow_up: Messages = (),
        *,
        generate: bool = True,
        date: str | None = None,
    ) -> str:
        """Return the text that the template puts after the last answer of `history`."""
        messages = [*history, {"role": self._role, "content": message}, *follow_up]
        text = self._render(messages, generate=generate, date=date)
        return after(history[-1]["content"].removeprefix(_THOUGHT), text)

    def _reject_dependence(self) -> None:
        """Require that the text of a message does not depend on the messages before it."""
        by_length = [self._history(turns) for turns in _LENGTHS]
        by_content = [
            self._history(1, shift=1),
            self._history(3, shift=2),
            self._history(2, reasoning=_THOUGHT),
        ]
        causes = [
            ("the number of turns before it", by_length),
            ("the content of earlier messages", by_content),
        ]
        for message in MESSAGES:
            expected = self.between(message)
            if message.strip() not in expected:
                raise UnsupportedTemplate(
                    f"the chat template does not show the {self._role} message {message!r} after the answer "
                    f"that it follows ({clipped(expected)}); {ADVICE_APPEND}"
                )
            for cause, histories in causes:
                for history in histories:
                    text = self._after_history(history, message)
                    if text != expected:
                        raise UnsupportedTemplate(
                            f"with this chat template, the text of a {self._role} message depends on {cause} "
                            f"({difference(expected, text)}), so the tokens cannot be append-only; "
                            f"{ADVICE_APPEND}"
                        )

    def _reject_clock(self) -> None:
        """Require that the text of a message does not depend on the date or time."""
        texts = [self._after_history(self._neutral, "x", date=date) for date in ("one date", "another date")]
        if texts[0] != texts[1]:
            raise UnsupportedTemplate(
                f"the chat template puts the date or time into each {self._role} message "
                f"({clipped(texts[0])}), so episodes are not reproducible; {ADVICE_APPEND}"
            )

    def _reject_changing_history(self) -> None:
        """Require that a message has the same text whether or not other messages follow it."""
        question = [*self._system, {"role": "user", "content": QUESTIONS[0]}]
        follow_up = [
            {"role": "assistant", "content": ANSWERS[0]},
            {"role": "user", "content": QUESTIONS[1]},
        ]
        history = self._history(2)
        self._require_growth(
            [self._render(question, generate=generate) for generate in (False, True)],
            self._render([*question, *follow_up], generate=True),
        )
        self._require_growth(
            [self._after_history(history, MESSAGES[1], generate=generate) for generate in (False, True)],
            self._after_history(history, MESSAGES[1], follow_up),
        )

    def _require_growth(self, last: list[str], later: str) -> None:
        """Require that the text of the last message begins a text in which others follow it.

        Args:
            last: Text without and with the opening of an answer. Their common part is the message itself:
                without the opening, some templates end the text with the end-of-sequence token.
            later: Text with an answer and another message.
        """
        text = last[0][: common_length(*last)]
        if not later.startswith(text):
            raise UnsupportedTemplate(
                "the chat template renders a message differently when others follow it "
                f"({difference(text, later)}), so the tokens cannot be append-only; {ADVICE_APPEND}"
            )

    def _reject_varying_images(self, placeholder: str) -> None:
        """Require that an image is one placeholder, whatever images come before it."""
        message = [{"type": "image"}, {"type": "text", "text": MESSAGES[1]}]
        expected = self.between(message)
        earlier = self._history(1)
        earlier[-2] = {**earlier[-2], "content": message}
        if expected.count(placeholder) != 1 or MESSAGES[1] not in expected:
            raise UnsupportedTemplate(
                f"the chat template does not write {placeholder!r} exactly once per image "
                f"({clipped(expected)}); {ADVICE_APPEND}"
            )
        text = self._after_history(earlier, message)
        if text != expected:
            raise UnsupportedTemplate(
                f"with this chat template, the text of an image depends on the images before it "
                f"({difference(expected, text)}), so the tokens cannot be append-only; {ADVICE_APPEND}"
            )

    def _reject_nothing_between(self) -> None:
        """Require at least one token between two responses, whatever the message."""
        for message in MESSAGES:
            ids = self._encode(self.between(message))
            if len(ids) <= self.end.space + len(self.end.closing):
                raise UnsupportedTemplate(
                    f"the chat template puts no token between two responses when the message is {message!r}, "
                    f"so they would form a single run of 1s in the response mask; {ADVICE_APPEND}"
                )
