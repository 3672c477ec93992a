"""Mutants of source text in any language, one token changed at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator

_TOKEN = re.compile(r"\s+|'(?:[^']|'')*'|\"[^\"]*\"|\w+|[<>=!]=|<>|\|\||&&|.", re.DOTALL)
_SWAPS = {
    "<": ("<=", ">"), "<=": ("<",), ">": (">=", "<"), ">=": (">",), "=": ("<>",), "<>": ("=",), "+": ("-",),
    "-": ("+",), "*": ("+",), "/": ("*",), "AND": ("OR",), "OR": ("AND",), "ASC": ("DESC",), "DESC": ("ASC",),
    "min": ("max",), "max": ("min",), "sum": ("max",), "avg": ("max",), "count": ("max",),
    "old": ("new",), "new": ("old",), "lower": ("upper",), "LEFT": ("",), "UNIQUE": ("",), "NOT": ("",),
    "DISTINCT": ("",), "IS": ("=",), "NULL": ("0",), "IN": ("NOT IN",), "EXISTS": ("NOT EXISTS",),
    "round": ("",), "coalesce": ("max",), "==": ("!=",), "!=": ("==",), "&&": ("||",), "||": ("&&",),
    "in": ("not in",),
    "and": ("or",), "or": ("and",), "not": ("",), "True": ("False",), "False": ("True",), "tail": ("head",),
    "head": ("tail",), "sort": ("cat",), "uniq": ("cat",), "tac": ("cat",), "mv": ("cp",), "cp": ("mv",),
}  # fmt: skip


def tokens(source: str) -> list[str]:
    return _TOKEN.findall(source)


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """Return the place and kind of each change, the same for all drawn names, and the changed source."""
    parts = tokens(source)
    assert "".join(parts) == source
    for place, part in enumerate(parts):
        for kind, new in _changes(part):
            yield f"{place} {kind}", "".join([*parts[:place], new, *parts[place + 1 :]])


def _changes(part: str) -> Iterator[tuple[str, str]]:
    if part.isdigit():
        width = len(part) if part.startswith("0") else 0
        yield "plus one", str(int(part) + 1).zfill(width)
        if int(part) > 0:
            yield "minus one", str(int(part) - 1).zfill(width)
    elif part[:1] in "'\"" and 2 < len(part) < 20:
        yield "other text", f"{part[:-1]}x{part[-1]}"
    for new in _SWAPS.get(part, ()):
        yield f"{part} becomes {new or 'nothing'}", new


def without_statements(source: str, separator: str = ";") -> Iterator[tuple[str, str]]:
    """Return the source without one of its statements."""
    statements = source.split(separator)
    for place, statement in enumerate(statements):
        if statement.strip():
            yield (
                f"without statement {place}",
                separator.join([*statements[:place], *statements[place + 1 :]]),
            )
