"""Where a chat template expects the thought of an earlier answer: `find_thought_form`.

Some templates read a field such as ``reasoning_content``, some a content part, and others look for
``<think>...</think>`` in the text, or treat it as any other text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gem_chat._calls.native import after_opening
from gem_chat._chat_templates import THOUGHT_FIELDS
from gem_chat._probes import LAST_ANSWERS, QUESTIONS, THOUGHT, system_messages
from gem_chat._template import Render
from gem_chat._thinking import ThinkingFormat
from gem_core import without_thoughts
from gem_core._thoughts import THOUGHT_CLOSE, THOUGHT_OPEN, thoughts_in
from gem_core.errors import UnsupportedTemplate


@dataclass(frozen=True)
class ThoughtForm:
    """How an assistant's message holds a thought.

    Attributes:
        names: Fields that hold it; empty for a template that reads no such field.
        parts: Whether a content part holds it.
        before: Text that the template itself writes at the start of a thought.
        after: Text that it writes at the end of a thought.
        gap: Text that it writes between a thought and the answer.
        lead: Text that it writes before an answer without a thought, such as an empty one.
        tail: Whitespace that it writes between an answer and the token that ends it.
    """

    names: tuple[str, ...] = ()
    parts: bool = False
    before: str = ""
    after: str = ""
    gap: str = ""
    lead: str = ""
    tail: str = ""

    @property
    def in_text(self) -> bool:
        """Whether an answer holds a thought in its text, where the template looks for it or not."""
        return not (self.names or self.parts)

    def trimmed(self, text: str) -> str:
        """Return an answer without what the template itself writes around it."""
        return text.removesuffix(self.tail).removeprefix(self.lead)

    def split(self, text: str) -> tuple[str, str]:
        """Return the thought and the answer of a response, without what the template itself adds to them.

        So the template writes a response that has its form as it was sampled. The thought is empty if the
        template expects it in the text.
        """
        text = text.removesuffix(self.tail)
        leads = text.startswith(THOUGHT_OPEN)
        if self.in_text or not (leads or thoughts_in(text)):
            return "", self.trimmed(text)
        if not leads or text.count(THOUGHT_CLOSE) > 1:
            return thoughts_in(text), without_thoughts(text)
        thought, _, answer = text.removeprefix(THOUGHT_OPEN).partition(THOUGHT_CLOSE)
        thought = thought.removeprefix(self.before).removesuffix(self.after)
        return thought, answer.removeprefix(self.gap)

    def fields(self, thought: str, content: Any) -> dict[str, Any]:
        """Return the fields of a message that hold a thought.

        Args:
            thought: The thought.
            content: The content of the message without it.
        """
        if not self.parts:
            return dict.fromkeys(self.names, thought)
        texts = [{"type": "text", "text": content}] if content else []
        return {"content": [{"type": "thinking", "thinking": thought}, *texts]}


THOUGHT_FIELD = ThoughtForm(("reasoning_content",))
"""The form of chat APIs."""


def find_thought_form(
    render: Render, thinking: ThinkingFormat, *, system_prompt: str | None = None
) -> ThoughtForm:
    """Return where a template expects thoughts.

    Args:
        render: The template.
        thinking: How it writes thoughts.
        system_prompt: First message of each conversation; None for no system message.
    """
    question = [*system_messages(system_prompt), {"role": "user", "content": QUESTIONS[0]}]
    answer = LAST_ANSWERS[0]

    def written(message: Mapping[str, Any]) -> str:
        """Return what the template writes for an answer, with thoughts as ``<think>...</think>``."""
        try:
            opening = render(question, generate=True)
            text = render([*question, {"role": "assistant", "content": answer, **message}], generate=False)
        except UnsupportedTemplate:
            return ""
        return thinking.rewrite(after_opening(text, opening))

    lead, _, rest = written({}).partition(answer)
    tail = rest[: len(rest) - len(rest.lstrip())] if rest.strip() else ""
    for form in (ThoughtForm(THOUGHT_FIELDS), ThoughtForm(parts=True)):
        text = written(form.fields(THOUGHT, answer))
        before, found, rest = text.partition(THOUGHT)
        after, closes, gap = rest.partition(THOUGHT_CLOSE)
        if found and closes and answer in gap and "'type'" not in before and '"type"' not in before:
            before = before.rpartition(THOUGHT_OPEN)[2]
            return replace(
                form, before=before, after=after, gap=gap.partition(answer)[0], lead=lead, tail=tail
            )
    return ThoughtForm(lead=lead, tail=tail)
