"""Exact match of short answers, as question-answering datasets define it."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from gem_core._util.checks import expected

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_KEPT_FORMS = ("<super>", "<sub>", "<fraction>")
"""Characters that mean something else than their plain form: 10\u00b2 is not 102."""
_LIKE_PUNCTUATION = "\u02b9\u02bb\u02bc\u2212"
"""Letters and symbols used as apostrophes and as a dash."""


def _normalize(text: str) -> str:
    """Return the text without what does not matter: letter case, punctuation, articles, extra whitespace.

    Case is folded, and punctuation is that of every script. One text in several forms of Unicode is the same:
    composed or not, full-width, with ligatures.

    >>> _normalize("The  U.S.A.!")
    'usa'
    """
    if text.isascii():
        text = text.lower().translate(_NO_PUNCTUATION)
    else:
        text = "".join(filter(_counts, _folded(text))).translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def _folded(text: str) -> str:
    """Return the text in one letter case and one form of Unicode."""
    if text.isascii():
        return text.lower()
    plain = "".join(map(_plain_form, unicodedata.normalize("NFC", text)))
    return unicodedata.normalize("NFC", plain.casefold().replace("i\u0307", "i"))


def exact_match(answer: str, references: Iterable[str]) -> bool:
    """Return whether the answer equals one of the references after normalization.

    A text that normalization would empty ("A", "?") is compared literally, in any case and form of Unicode.

    Raises:
        ConfigError: `answer` is not a text, or `references` is one text instead of a list.
    """
    if not isinstance(answer, str):
        raise expected("answer", answer, "a text")
    if isinstance(references, str):
        raise expected("references", references, "a list of texts")
    short = _normalize(answer)
    plain = _folded(answer).strip()
    return any(
        short == _normalize(reference) if short else plain == _folded(reference).strip() and plain != ""
        for reference in references
    )


@lru_cache(maxsize=4096)
def _plain_form(letter: str) -> str:
    if letter.isascii() or unicodedata.decomposition(letter).startswith(_KEPT_FORMS):
        return letter
    return unicodedata.normalize("NFKC", letter)


@lru_cache(maxsize=4096)
def _counts(letter: str) -> bool:
    if letter in _LIKE_PUNCTUATION:
        return False
    kind = unicodedata.category(letter)
    return kind[0] != "P" and kind != "Cf"
