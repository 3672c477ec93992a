"""The words of a text, for indexes and queries in any language.

| text | words |
|---|---|
| letters and digits with their marks | each run, in one spelling and case: "Köln" in either form of Unicode |
| Chinese, Japanese, Korean, Thai, Lao, Khmer, Burmese | characters and pairs of neighboring characters |
| everything else | none: it only separates |

The scripts of the second row have no blanks between words, or, as Korean, attach endings to them. A query of
one character is this character. A longer one is its pairs, so that it does not find the same characters in
another order.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

_WORD = re.compile(r"\w+")
_CAREFUL = re.compile(
    r"[\u00ad\u02bb\u02bc\u0300-\u036f\u0483-\u0489\u0590-\u1dff\u200b-\u200f\u2060\u20d0-\u20ff"
    r"\u2cef-\u2cf1\u2d7f\u2de0-\U0010ffff]"
)
"""Characters without which a word in small letters is a run of ``\\w``."""
_UNSPACED = (
    "\u0e01-\u0e4e\u0e81-\u0ece\u0edc-\u0edf"  # Thai, Lao
    "\u1000-\u103f\u1050-\u108f\u109a-\u109f\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa7f"  # Burmese
    "\u1780-\u17d3\u17d7\u17dc\u17dd"  # Khmer
    "\u1100-\u11ff\ua960-\ua97f\uac00-\ud7ff"  # Korean
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u302f\u3031-\u303c\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Chinese
    "\u3040-\u318f\u31a0-\u31bf\u31f0-\u31ff"  # Japanese, Bopomofo
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_DROPPED = dict.fromkeys(
    [
        0x00AD, 0x200C, 0x200D, 0x200E, 0x200F, 0x2060, 0xFEFF,  # formatting inside words
        0x20E3, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0),  # keycaps, variants of a character
        0x0640, 0x0670, *range(0x064B, 0x0653),  # Arabic: lengthening and vowels
        *range(0x0591, 0x05BE), 0x05BF, 0x05C1, 0x05C2, 0x05C4, 0x05C5, 0x05C7,  # Hebrew: vowels
    ]
)  # fmt: skip
_APOSTROPHES = {0x02BB: "'", 0x02BC: "'"}
_TABLE = {**_DROPPED, **_APOSTROPHES}


def words(text: str) -> list[str]:
    """Return the words of a document."""
    if text.isascii():
        return _WORD.findall(text.lower())
    folded, careful = _folded(text)
    if not careful:
        return _WORD.findall(folded)
    return [word for run in _patterns().run.findall(folded) for word in _run_words(run)]


def query_words(text: str) -> list[str]:
    """Return the words of a query, to be found among the `words` of documents."""
    if text.isascii():
        return _WORD.findall(text.lower())
    return [word for run in runs(text) for word in _run_words(run, query=True)]


def runs(text: str) -> list[str]:
    """Return the runs of letters and digits with their marks, in one spelling and case."""
    folded, careful = _folded(text)
    return (_patterns().run if careful else _WORD).findall(folded)


def _folded(text: str) -> tuple[str, bool]:
    """Return a text in one spelling and case, and whether it has characters of `_CAREFUL`.

    That is Unicode's NFKC, case-folded, without the vowels of Arabic and Hebrew, which are optional, and
    without the dot that case folding leaves of a Turkish capital letter.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    if not _CAREFUL.search(folded):
        return folded, False
    folded = folded.replace("i\u0307", "i").translate(_TABLE)
    return unicodedata.normalize("NFKC", folded), True


def _run_words(run: str, query: bool = False) -> Iterator[str]:
    if not _patterns().unspaced.match(run):
        yield run
        return
    units = _patterns().unit.findall(run)
    if not query or len(units) == 1:
        yield from units
    for first, second in pairwise(units):
        yield first + second


class _Patterns(NamedTuple):
    run: re.Pattern[str]
    """A run of either kind of script."""
    unspaced: re.Pattern[str]
    """The first character of a run of a script without blanks."""
    unit: re.Pattern[str]
    """A character with its marks."""


@lru_cache(maxsize=1)
def _patterns() -> _Patterns:
    # A mark never begins a run. Most marks follow a letter; the few blocks without marks are left out.
    marks = "".join(
        re.escape(chr(code))
        for code in (*range(0x300, 0x20000), *range(0xE0100, 0xE01F0))
        if unicodedata.category(chr(code))[0] == "M"
    )
    unit = rf"(?=\w)[{_UNSPACED}][{marks}]*"
    return _Patterns(
        re.compile(rf"(?:{unit})+|(?:(?![{_UNSPACED}])\w[{marks}]*)+"),
        re.compile(f"[{_UNSPACED}]"),
        re.compile(unit),
    )
