"""URLs without passwords and keys, for files, pages, and messages."""

from __future__ import annotations

import re
from typing import Any

_USER = re.compile(
    r"(?<=://)(?:[^\s/?#'\"<>]{0,500}@|[^\s/:@'\"<>]{0,200}:(?!\d+(?:[/?#]|$))[^\s'\"<>]{0,300}@)"
)
"""User and password before the host, also with characters that a correct URL would escape."""
_SECRET = re.compile(
    r"([?&;#]|%3f|%26)((?:[\w.-]|%5b){0,40}?(?:key|token|secret|passw(?:or)?d|pwd|sig|signature|credentials?|auth)"
    r"(?:[\w.-]|%5d){0,40}(?:=|%3d))[^&\s'\"<>#]+",
    re.IGNORECASE,
)
HIDDEN = "***"


def without_secrets(text: str) -> str:
    """Return a text in which no URL has a user, a password, or a query parameter that looks like a key.

    >>> without_secrets("http://me:pw@host:8000/v1?api_key=abc&page=2")
    'http://host:8000/v1?api_key=***&page=2'
    """
    if "://" not in text:
        return text
    return _SECRET.sub(rf"\1\2{HIDDEN}", _USER.sub("", text))


def data_without_secrets(value: Any) -> Any:
    """Return lists and dicts with `without_secrets` applied to every text in them."""
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, dict):
        return {key: data_without_secrets(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(data_without_secrets, value)) if type(value) in (list, tuple) else value
    return value
