"""Values of sums, integrals, and limits by math-verify, in a sandbox with one fresh process per expression.

math-verify gets expressions that `latex` has read to the last symbol, in the spelling of `printed`, and
returns a value, which `values` compares. It never sees an answer as the model wrote it.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gem_core.errors import MissingDependency
from gem_envs.graders._printed import Printer, Unprintable
from gem_envs.graders._trees import EXPRESSIONS, Tree, children, rebuilt
from gem_envs.sandbox._calls import CallError, Calls, CallTimeout

calls = Calls(Path(__file__).with_name("_verify.py"), packages=("math-verify", "antlr4-python3-runtime"))


class OutOfTime(Exception):
    """Raised when a value took too much time."""


_COMPUTED = frozenset(("int", "sum", "prod", "lim"))


def has_operators(tree: Tree) -> bool:
    """Return whether an expression has a sum, product, integral, or limit."""
    if tree[0] == "o" and tree[1] in _COMPUTED:
        return True
    if tree[0] in EXPRESSIONS:
        return any(map(has_operators, children(tree)))
    return any(map(has_operators, _parts(tree)))


def evaluated(tree: Tree) -> Tree | None:
    """Return the tree with the values of its sums, products, integrals, and limits; None if one has no value.

    Raises:
        OutOfTime: A value took too much time.
        MissingDependency: math-verify is not installed.
    """
    if tree[0] == "o" and tree[1] in _COMPUTED:
        return _value(tree)
    if tree[0] in EXPRESSIONS:
        parts = [evaluated(part) for part in children(tree)]
        found = tuple(part for part in parts if part is not None)
        return rebuilt(tree, found) if len(found) == len(parts) else None
    if tree[0] not in ("seq", "rel"):
        return None
    index = 3 if tree[0] == "seq" else 1
    items = [evaluated(item) for item in tree[index]]
    return None if None in items else (*tree[:index], items, *tree[index + 1 :])


def _parts(tree: Tree) -> list[Tree]:
    return list(tree[3] if tree[0] == "seq" else tree[1] if tree[0] == "rel" else ())


def _value(tree: Tree) -> Tree | None:
    printer = Printer()
    try:
        text = printer.latex(tree)
    except Unprintable:
        return None
    require()
    try:
        return _tree(calls("value", text), printer.names)
    except CallTimeout as error:
        raise OutOfTime from error
    except CallError:
        return None


def _tree(value: Any, names: dict[str, str]) -> Tree | None:
    """Return the tree of a result; None if the result, or a part of it, is None."""
    if value is None:
        return None
    kind, *rest = value
    if kind == "n":
        top, bottom = (("n", Fraction(number), None) for number in rest)
        return top if rest[1] == 1 else ("/", top, bottom)
    if kind == "v":
        return ("v", names.get(rest[0], rest[0]))
    if kind == "f":
        argument = _tree(rest[1], names)
        return argument and ("f", rest[0], argument, None)
    parts = [_tree(part, names) for part in rest]
    return None if None in parts else (kind, *parts)


@lru_cache(maxsize=1)
def require() -> None:
    """Raise `MissingDependency` unless math-verify is installed."""
    if find_spec("math_verify") is None:
        raise MissingDependency("grading needs the package 'math-verify': pip install 'gem-core[math]'")
