"""Parses calls in Python syntax, as some models write them: ``[search(query="gems", top_k=3)]``."""

from __future__ import annotations

import ast
from typing import Any

from gem_core._util.expressions import parse_expression

_LONGEST = 100_000
"""Maximum number of characters, because Python's parser uses much memory for long texts."""


def read_calls(text: str) -> list[tuple[str, dict[str, Any]]] | str:
    """Return the names and arguments of the calls in a list, or an error message. Nothing is evaluated."""
    if len(text) > _LONGEST:
        return f"the list of calls has more than {_LONGEST} characters"
    try:
        node = parse_expression(text)
        items = node.elts if isinstance(node, ast.List) else [node]
        return [_call(item) for item in items]
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        return f"the list of calls cannot be read: {' '.join(str(error).split())[:200]}"


def _call(node: ast.expr) -> tuple[str, dict[str, Any]]:
    if not isinstance(node, ast.Call):
        raise ValueError("expected name(key=value)")
    if node.args:
        raise ValueError("arguments need their names: name(key=value)")
    arguments = {k.arg: _json_value(ast.literal_eval(k.value)) for k in node.keywords if k.arg}
    if len(arguments) != len(node.keywords):
        raise ValueError("an argument is given twice, or with **")
    return ast.unparse(node.func), arguments


def _json_value(value: Any) -> Any:
    """Return `value` if JSON can represent it; tuples become lists."""
    if isinstance(value, list | tuple):
        return [_json_value(item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _json_value(item) for key, item in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"a value of type {type(value).__name__} is not JSON")
