"""Spellings of an answer that mean the same: letter case and separators of thousands.

The rule for every dataset: an answer may be in any letter case, and its numbers may have separators of
thousands, unless case or separator carry meaning. Case does in `CASE_COUNTS`; a separator does if the
expected answer contains it for another purpose, such as the comma of a list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

CASE_COUNTS = frozenset(("codeio", "rubiks_cube"))
"""Datasets whose answers differ by case: strings in JSON, and moves of one or two layers."""

_NO_DIGIT = re.compile(r"\D")
_WORD = re.compile(r"[^\W\d_]+")
_SEPARATORS = (
    (",", ","), ("{,}", r"\{,\}"), ("\\,", r"\\,"), ("'", "['\u2019]"), ("_", "_"),
    (" ", "[ \u00a0\u2009\u202f]"),
)  # fmt: skip
_GROUPS = tuple(
    (mark, re.compile(rf"(?<![\d.])[1-9]\d{{0,2}}(?:{pattern}\d{{3}})+(?!\d)"))
    for mark, pattern in _SEPARATORS
)


def spellings(answer: str, expected: str, name: str) -> Iterator[str]:
    """Yield other spellings of an answer that mean the same, each different from `answer`.

    Args:
        answer: The answer.
        expected: The expected answer, or one of several, from which the spelling is taken.
        name: Name of the dataset.
    """
    forms = [answer]
    plain = _without_separators(answer, expected)
    if plain != answer:
        forms.append(plain)
        yield plain
    if name in CASE_COUNTS:
        return
    for form in tuple(forms):
        for spelled in _in_case_of(form, expected):
            if spelled not in forms:
                forms.append(spelled)
                yield spelled


def _without_separators(answer: str, expected: str) -> str:
    for mark, number in _GROUPS:
        if mark not in expected:
            answer = number.sub(lambda match: _NO_DIGIT.sub("", match[0]), answer)
    return answer


def _in_case_of(answer: str, expected: str) -> Iterator[str]:
    """Yield the answer in the case of the expected one: as a whole, word by word, and in one case."""
    if answer.casefold() == expected.casefold():
        yield expected
    known: dict[str, str] = {}
    for word in _WORD.findall(expected):
        known.setdefault(word.casefold(), word)
    yield _WORD.sub(lambda match: known.get(match[0].casefold(), match[0]), answer)
    if expected == expected.upper():
        yield answer.upper()
    if expected == expected.lower():
        yield answer.lower()
