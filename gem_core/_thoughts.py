"""Thoughts in a response: ``<think>...</think>``, whatever their syntax in the chat template."""

from __future__ import annotations

import re
from collections.abc import Iterator

THOUGHT_OPEN, THOUGHT_CLOSE = "<think>", "</think>"
_THOUGHT_STARTS = re.compile(r"(?:\A\s*|(?<=\n)[ \t]*|(?<=</think>)\s*)<think>")


def without_thoughts(text: str) -> str:
    """Return a response without its thoughts, ``<think>...</think>``.

    A thought begins at the start of the text, at the start of a line, or right after another one. A thought
    that is not closed lasts until the end.

    >>> without_thoughts("<think>Or 4?</think> It is 5.")
    'It is 5.'
    """
    if THOUGHT_OPEN not in text:  # the usual case
        return text
    pieces, place = [], 0
    for start, end in _thoughts(text):
        pieces.append(text[place:start])
        place = end
    return "".join([*pieces, text[place:]]).lstrip() if place else text


def thoughts_in(text: str) -> str:
    """Return the thoughts of a response, one paragraph each; see `without_thoughts`.

    >>> thoughts_in("<think>Or 4?</think> It is 5.")
    'Or 4?'
    """
    found = (text[start:end].strip().removeprefix(THOUGHT_OPEN) for start, end in _thoughts(text))
    return "\n\n".join(thought.removesuffix(THOUGHT_CLOSE).strip() for thought in found)


def _thoughts(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each thought, with its tags."""
    place = 0
    while (start := _THOUGHT_STARTS.search(text, place)) is not None:
        end = text.find(THOUGHT_CLOSE, start.end())
        place = len(text) if end < 0 else end + len(THOUGHT_CLOSE)
        yield start.start(), place
