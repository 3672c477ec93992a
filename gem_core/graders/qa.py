"""Exact match of short answers, as question-answering datasets define it."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize(text: str) -> str:
    """Return the text in lower case, without ASCII punctuation and articles, with whitespace collapsed.

    >>> normalize("The  U.S.A.!")
    'usa'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(answer: str, references: Iterable[str]) -> bool:
    """Return whether the answer equals one of the references after normalization.

    A text that normalization would empty ("A", "?") is compared literally, ignoring case.
    """
    short = normalize(answer)
    plain = answer.strip().lower()
    return any(
        short == normalize(reference) if short else plain == reference.strip().lower() and plain != ""
        for reference in references
    )
