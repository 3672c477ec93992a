"""Statements inside a long upstream function, compiled to run on their own."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from functools import cache
from types import CodeType
from typing import Any


@cache
def extract(function: Callable[..., Any], first: str, last: str = "") -> CodeType:
    """Return the statements from the one that starts with `first` to the one that starts with `last`.

    Args:
        function: Function or method that contains them, in one block.
        first: Beginning of the first statement, as `ast.unparse` writes it.
        last: Beginning of the last statement; empty for only one.
    """
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    for node in ast.walk(tree):
        for field in ("body", "orelse"):
            block = getattr(node, field, None)
            if not isinstance(block, list):
                continue
            starts = [n for n, s in enumerate(block) if ast.unparse(s).startswith(first)]
            if not starts:
                continue
            ends = [n for n, s in enumerate(block) if last and ast.unparse(s).startswith(last)]
            chosen = block[starts[0] : (ends[0] if last else starts[0]) + 1]
            return compile(ast.Module(chosen, []), inspect.getsourcefile(function) or "upstream", "exec")
    raise LookupError(f"{function.__qualname__} has no statement {first!r}")
