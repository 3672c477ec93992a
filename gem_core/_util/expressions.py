"""Python's parser of expressions, for use in several threads."""

from __future__ import annotations

import ast

from gem_core._util.forks import ForkSafeLock

_PARSING = ForkSafeLock(reentrant=True)


def parse_expression(text: str) -> ast.expr:
    """Return the syntax tree of a Python expression.

    CPython 3.11 raises SystemError if a thread parses while the garbage collector has interrupted another one
    that is parsing (https://github.com/python/cpython/issues/106905), so only one thread parses at a time.

    Args:
        text: The expression; surrounding spaces are ignored.

    Raises:
        SyntaxError: The text is not an expression.
        ValueError: The text contains a null character.
        RecursionError: The expression is too deep.
        MemoryError: The expression is too deep for the parser.
    """
    with _PARSING:
        return ast.parse(text.strip(), mode="eval").body
