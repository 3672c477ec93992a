r"""Answers to multiple-choice questions: ``C``, ``(C)``, ``Option C``, ``\textbf{(C)}\ 14``."""

from __future__ import annotations

import re
from typing import NamedTuple

_GROUP = re.compile(r"\\(?:text(?:bf|it|rm)?|math(?:bf|rm|it)|mbox|bf|rm)\s*\{([^{}]*)\}")
_SPACE = re.compile(r"(?:\\[ ,;:!]|\\q?quad(?![A-Za-z])|[~\s$*])+")
_LABEL = r"(?:(?:the )?(?:(?:final|correct) )?(?:answer|option|choice)(?: is)? ?[:=]? ?)"
_CHOICE = re.compile(
    rf"(?:{_LABEL}{{1,2}}(?:\((?P<a>[a-j])\)|(?P<b>[a-j]))(?P<c>[.:)]?)|\((?P<d>[a-j])\)[.:]?"
    r"|(?P<e>(?-i:[A-J]))(?P<f>[.:)]?))(?P<rest>.*)",
    re.IGNORECASE,
)
_SECOND = re.compile(r"\([A-Ja-j]\)|^\s*(?:,|;|or\b|and\b|/|&)", re.IGNORECASE)
_LONGEST = 300


class ChosenOption(NamedTuple):
    """A chosen option."""

    letter: str
    """Capital letter of the option."""
    text: str
    """Text of the option if the answer repeats it, else empty."""


def choice(text: str) -> ChosenOption | None:
    r"""Return the option that an answer names; None if it names none, or more than one.

    >>> choice(r"\textbf{(C)}\ 14")
    Choice(letter='C', text='14')
    """
    if len(text) > _LONGEST:
        return None
    plain = _SPACE.sub(" ", _GROUP.sub(r" \1 ", text)).strip()
    match = _CHOICE.fullmatch(plain)
    if match is None:
        return None
    rest = match["rest"].strip()
    bare = (match["e"] and not match["f"]) or (match["b"] and not match["c"])
    if (bare and rest not in ("", ".")) or _SECOND.search(rest):
        return None
    return ChosenOption((match["a"] or match["b"] or match["d"] or match["e"]).upper(), rest.strip(" ."))
