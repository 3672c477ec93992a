"""Trees of expressions: their parts, and the same tree with other variables."""

from __future__ import annotations

import re
from typing import Any, TypeAlias

from gem_envs.graders._tokens import Unreadable

Tree: TypeAlias = tuple[Any, ...]
EXPRESSIONS = frozenset({"n", "v", "+", "*", "/", "^", "-", "f", "o"})
"""Kinds of trees that are expressions."""

CONSTANTS = frozenset(("pi", "e", "i", "infty"))
"""Names that are not variables."""


def expression(tree: Tree) -> Tree:
    """Return the tree if it is an expression; otherwise give up."""
    return tree if tree[0] in EXPRESSIONS else fail()


def fail() -> Tree:
    """Give up where a value is expected."""
    raise Unreadable


def children(tree: Tree) -> tuple[Tree, ...]:
    """Return the operands of an expression."""
    kind = tree[0]
    if kind in ("n", "v"):
        return ()
    if kind == "f":
        return tree[2:] if tree[3] else tree[2:3]
    return tuple(tree[2]) if kind == "o" else tree[1:] if kind in EXPRESSIONS else ()


def names(tree: Tree) -> set[str]:
    """Return the names of the free variables of an expression."""
    if tree[0] == "v":
        return {tree[1]} - CONSTANTS
    found = set().union(*map(names, children(tree)))
    return {name for name in found if not name.startswith("bound ")}


def rebuilt(tree: Tree, operands: tuple[Tree, ...]) -> Tree:
    """Return the tree with other operands."""
    kind = tree[0]
    if kind in ("n", "v") or kind not in EXPRESSIONS:
        return tree
    if kind == "f":
        return ("f", tree[1], operands[0], operands[1] if tree[3] else None)
    return ("o", tree[1], operands) if kind == "o" else (kind, *operands)


def renamed(tree: Any, name: str, fresh: Tree) -> Any:
    """Return a tree of any kind with another variable, also in indices such as a_k.

    Raises:
        Unreadable: It is not clear whether an index has the variable.
    """
    if isinstance(tree, list):
        return [renamed(part, name, fresh) for part in tree]
    if not isinstance(tree, tuple):
        return tree
    if tree[:1] != ("v",):
        return tuple(renamed(part, name, fresh) for part in tree)
    if tree[1] == name:
        return fresh
    letter, _, index = tree[1].partition("_")
    if name not in index:
        return tree
    if "\\" in index or len(name) > 1:
        raise Unreadable
    return ("v", f"{letter}_{index.replace(name, f'<{fresh[1]}>')}")


_BOUND = re.compile(r"bound (\d+)")


def nesting(tree: Tree) -> int:
    """Return how many sums, integrals, and limits are inside one another."""
    if tree[0] == "v":
        return max((int(level) for level in _BOUND.findall(tree[1])), default=0)
    return max((nesting(part) for part in children(tree)), default=0)
