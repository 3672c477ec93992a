"""`visible`: text from outside without characters that control a terminal or reorder what it shows."""

from __future__ import annotations

import re

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
    "|(?<=[\x00-\x7f])[\u200b-\u200d]|[\u200b-\u200d](?=[\x00-\x7f])"
)
"""C0 (without tab and newline), DEL, C1, marks of the writing direction, line separators, invisible
operators, tags, and, next to ASCII, joiners, which letters of other scripts and emoji need."""


def visible(text: str, *, lines: bool = True) -> str:
    r"""Return a text in which control characters are escapes as in Python.

        >>> visible("\x1b[2J")
        '\\x1b[2J'

    Args:
        text: The text.
        lines: Whether newlines and tabs may stay; False for a name or a title.
    """
    text = _HIDDEN.sub(_escape, text)
    return text if lines else re.sub(r"[\n\t]", _escape, text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
