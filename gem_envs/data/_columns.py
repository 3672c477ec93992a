"""Values in the rows of datasets: nested keys, chat messages as prompts, and right answers.

A key is the name of a column, or a path into it such as ``reward_model.ground_truth``. Several keys are
joined by ``+``: ``context+question`` is one text after the other, ``answer.value+answer.aliases`` the answers
of both.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from gem_core._util.foreign_json import read_json
from gem_core.errors import DataError


def roots(key: str, columns: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the columns that a key reads; a column whose own name has a dot is not a path."""
    return tuple(one if one in columns else one.partition(".")[0] for one in key.split("+"))


def value_at(row: Mapping[str, Any], key: str) -> Any:
    """Return the value at one key; None if there is none.

    A path goes into dicts, into JSON text of dicts, and into every entry of a list.
    """
    if key in row:
        return row[key]
    value: Any = row
    for part in key.split("."):
        value = _inside(value, part)
    return value


def _inside(value: Any, part: str) -> Any:
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        value = _decoded(value)
    if isinstance(value, Mapping):
        return value.get(part)
    if isinstance(value, list):
        if part.isdecimal():
            return value[int(part)] if int(part) < len(value) else None
        return [_inside(entry, part) for entry in value]
    return None


def prompt_text(row: Mapping[str, Any], key: str) -> str:
    """Return the text at a key: a text, or chat messages.

    The messages are joined by blank lines. If one is an assistant's, each begins with its role.

    Raises:
        DataError: There is no text.
    """
    given = [(value, one) for one in key.split("+") if (value := value_at(row, one)) is not None]
    return "\n\n".join(_text(value, one) for value, one in given or [(None, key)])


def _text(value: Any, key: str) -> str:
    messages = value
    if isinstance(value, str):
        messages = _decoded(value) if _MESSAGES.match(value) else None
    elif isinstance(value, Mapping):
        messages = [value]
    if isinstance(messages, list) and messages and all(_is_message(one) for one in messages):
        texts = [(str(one.get("role", one.get("from"))), _content(one, key)) for one in messages]
        talk = any(role in ("assistant", "gpt", "model") for role, _ in texts)
        value = "\n\n".join(f"{role.capitalize()}: {text}" if talk else text for role, text in texts if text)
    if not isinstance(value, str):
        raise DataError(f"column {key!r} must be text or chat messages, not {_kind(value)}")
    if not value.strip():
        raise DataError(f"column {key!r} is empty")
    return value


_MESSAGES = re.compile(r"""\s*\[\s*\{\s*["'](?:role|content|from|value)["']""")


def _is_message(one: Any) -> bool:
    return (
        isinstance(one, Mapping) and ("content" in one or "value" in one) and ("role" in one or "from" in one)
    )


def _content(message: Mapping[str, Any], key: str) -> str:
    content = message.get("content", message.get("value"))
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    plain = [text for text in texts if isinstance(text, str)]
    if len(plain) < len(texts):
        raise DataError(f"column {key!r} has a message with content that is not text")
    return "".join(plain)


def answer_texts(row: Mapping[str, Any], key: str) -> list[str]:
    """Return the answers at a key, without repetitions: a text or number, or a list of them.

    Raises:
        DataError: There is no answer, or one is neither text nor a number.
    """
    answers: list[str] = []
    for one in key.split("+"):
        value = value_at(row, one)
        if isinstance(value, str) and value[:1] == "[" and value[-1:] == "]":
            value = _listed(value)
        for entry in _flat(value):
            answers += _answer(entry, one)
    if not answers:
        raise DataError(f"column {key!r} has no answer")
    return list(dict.fromkeys(answers))


def _flat(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [entry for inner in value for entry in _flat(inner)]
    return [value]


def _answer(value: Any, key: str) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str):
        return [value] if value.strip() and value.strip().lower() not in ("nan", "none", "null") else []
    if isinstance(value, bool | int):
        return [str(value)]
    if isinstance(value, float | Decimal):
        if not math.isfinite(value):
            raise DataError(f"column {key!r} has the answer {value}, which is not a number")
        return [number_text(value)]
    raise DataError(f"column {key!r} has an answer of type {_kind(value)}; expected text or a number")


def number_text(value: float | Decimal) -> str:
    """Return a number without an exponent or a fraction of zeros, which other rows of the column cause."""
    if value == int(value):
        return str(int(value))
    return format(value, "f") if isinstance(value, Decimal) else repr(value)


def _listed(text: str) -> Any:
    """Return a list of texts that is stored as text, in JSON or in Python's notation; else the text."""
    if _UNSEPARATED.search(text):  # as numpy writes an array
        return [one[1:-1] for one in re.findall(r"'[^']*'|\"[^\"]*\"", text)]
    value = _decoded(text)
    return value if isinstance(value, list) and value and all(isinstance(v, str) for v in value) else text


_UNSEPARATED = re.compile(r"""^\[(?:'[^']*'|"[^"]*")(?:\s+(?:'[^']*'|"[^"]*"))+\]$""")


def _decoded(text: str) -> Any:
    """Return the value of JSON text or of a Python literal; None if it is neither."""
    try:
        return read_json(text)
    except ValueError:
        pass
    try:
        return ast.literal_eval(text) if len(text) < _LONGEST_LITERAL else None
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


_LONGEST_LITERAL = 100_000


def _kind(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__
