"""Neutral conversations with which chat templates are probed, and what the probes' messages share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gem_core.errors import UnsupportedTemplate

# An answer is located in a rendered text by its content, so the last answer of a conversation differs from
# all others.
QUESTIONS = ("first neutral question", "what comes second?", "3", "a longer\nquestion of\n\nthree lines")
ANSWERS = ("Alpha-reply-7319", "beta reply (2741)!", "Gamma: 5083")
LAST_ANSWERS = ("Neutral-last-reply-6205", "9 lines and\none other ending-4418")
MESSAGES = ("", "Neutral-Message", "two lines,\n\nof which one ends here.\n", "{{ x }} 12 <b>")
THOUGHT = "neutral thought 3950"

ADVICE = "set another chat_template (an option in every trainer)"
ADVICE_APPEND = f"set context=template, in which the template renders each prompt, or {ADVICE}"
"""For templates whose texts cannot be appended."""
_SHOWN = 60
"""Characters around the first difference that a message shows."""


def system_messages(system_prompt: str | None) -> list[dict[str, Any]]:
    """Return the messages before the first question."""
    return [] if system_prompt is None else [{"role": "system", "content": system_prompt}]


def after(answer: str, text: str) -> str:
    """Return the text after an answer.

    Raises:
        UnsupportedTemplate: The text does not hold the answer.
    """
    _, match, rest = text.partition(answer)
    if not match:
        raise UnsupportedTemplate(
            f"the chat template does not show the answer {answer!r} unchanged ({clipped(text)}), so what "
            "follows an answer cannot be determined"
        )
    return rest


def common_length(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Return the number of characters or tokens with which both begin."""
    for place, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return place
    return min(len(first), len(second))


def difference(first: str, second: str) -> str:
    """Return both texts around their first difference, as one line for a message."""
    start = max(common_length(first, second) - _SHOWN // 2, 0)
    return f"{_window(first, start)} became {_window(second, start)}"


def clipped(text: str) -> str:
    """Return the end of a text, as one line for a message."""
    return _window(text, max(len(text) - _SHOWN, 0))


def _window(text: str, start: int) -> str:
    shown = repr(text[start : start + _SHOWN])
    return f"{'...' if start else ''}{shown}{'...' if start + _SHOWN < len(text) else ''}"
