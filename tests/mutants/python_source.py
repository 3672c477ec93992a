"""Mutants of small Python programs, from the syntax tree, and running them within a number of steps."""

from __future__ import annotations

import ast
import copy
import io
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

_MOST_STEPS = 20_000
_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt, ast.GtE, ast.NotEq),
    ast.LtE: (ast.Lt, ast.Gt, ast.GtE, ast.Eq),
    ast.Gt: (ast.GtE, ast.Lt, ast.LtE, ast.NotEq),
    ast.GtE: (ast.Gt, ast.Lt, ast.LtE, ast.Eq),
    ast.Eq: (ast.NotEq, ast.LtE, ast.GtE),
}
_OPERATORS: dict[type[ast.operator], tuple[type[ast.operator], ...]] = {
    ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Mult: (ast.Add, ast.FloorDiv), ast.Mod: (ast.FloorDiv,),
    ast.FloorDiv: (ast.Mult,),
}  # fmt: skip
_OTHER_NAMES = {"max": "min", "min": "max", "sum": "len"}
_WRAPPERS = ("abs", "sorted", "int")


def mutants(source: str) -> dict[str, str]:
    """Return changed programs by the description of the change."""
    found: dict[str, str] = {}
    for index, node in enumerate(ast.walk(ast.parse(source))):
        for name, change in _changes(node):
            tree = ast.parse(source)
            target = list(ast.walk(tree))[index]
            replaced = _replaced(tree, target, change(copy.deepcopy(target)))
            text = ast.unparse(ast.fix_missing_locations(replaced))
            if text != ast.unparse(ast.parse(source)):
                found[f"{index} {name}"] = text
    return found


class _Replace(ast.NodeTransformer):
    def __init__(self, target: ast.AST, new: ast.AST | None) -> None:
        self.target, self.new = target, new

    def visit(self, node: ast.AST) -> Any:
        return self.new if node is self.target else self.generic_visit(node)


def _replaced(tree: ast.Module, target: ast.AST, new: ast.AST | None) -> ast.Module:
    result: ast.Module = _Replace(target, new).visit(tree)
    for node in ast.walk(result):
        for part in ("body", "orelse"):
            if part == "body" and getattr(node, part, None) == []:
                node.body = [ast.Pass()]  # type: ignore[attr-defined]
    return result


Change = tuple[str, Callable[[Any], ast.AST | None]]


def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _changes(node: ast.AST) -> Iterator[Change]:
    """Return the changes of one node."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield "plus one", lambda n: ast.Constant(n.value + 1)
        yield "minus one", lambda n: ast.Constant(n.value - 1)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 8:
        yield "other text", lambda n: ast.Constant(n.value + "x")
        yield "no text", lambda n: ast.Constant("")
    elif isinstance(node, ast.Compare):
        for other in _COMPARISONS.get(type(node.ops[0]), ()):
            yield other.__name__, lambda n, other=other: ast.Compare(n.left, [other()], n.comparators)
    elif isinstance(node, ast.BinOp):
        for operator in _OPERATORS.get(type(node.op), ()):
            yield operator.__name__, lambda n, o=operator: ast.BinOp(n.left, o(), n.right)
        yield "left side only", lambda n: n.left
        yield "right side only", lambda n: n.right
    elif isinstance(node, ast.AugAssign):
        yield "left out", lambda n: None
        yield "set, not added", lambda n: ast.Assign([ast.Name(n.target.id, ast.Store())], n.value)
    elif isinstance(node, ast.BoolOp):
        other_op = ast.And if isinstance(node.op, ast.Or) else ast.Or
        yield other_op.__name__, lambda n: ast.BoolOp(other_op(), n.values)
        for place in range(len(node.values)):
            yield f"only part {place}", lambda n, place=place: n.values[place]
    elif isinstance(node, ast.IfExp):
        yield "always", lambda n: n.body
        yield "never", lambda n: n.orelse
    elif isinstance(node, ast.comprehension):
        if node.ifs:
            yield "without condition", lambda n: ast.comprehension(n.target, n.iter, [], 0)
        distinct = ast.Name("distinct", ast.Load())
        yield "distinct", lambda n: ast.comprehension(n.target, ast.Call(distinct, [n.iter], []), n.ifs, 0)
    elif isinstance(node, ast.Slice):
        yield "without end", lambda n: ast.Slice()
    elif isinstance(node, ast.Call):
        yield from _call_changes(node)


def _call_changes(node: ast.Call) -> Iterator[Change]:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name in _OTHER_NAMES:
        yield (
            _OTHER_NAMES[name],
            lambda n: ast.Call(ast.Name(_OTHER_NAMES[name], ast.Load()), n.args, n.keywords),
        )
    if name in _WRAPPERS and len(node.args) == 1:
        if name != "int":
            yield f"without {name}", lambda n: n.args[0]
        else:
            yield "crash on 0", lambda n: ast.BoolOp(ast.Or(), [n, _parsed("1 // 0")])
            yield "no minus sign", lambda n: ast.Call(ast.Name("abs", ast.Load()), [n], [])
            yield "0 below 0", lambda n: ast.Call(ast.Name("max", ast.Load()), [ast.Constant(0), n], [])
    if name in ("sorted", "max") and node.keywords:
        yield "without keyword", lambda n: ast.Call(n.func, n.args, [])
    if name == "next":
        yield "without default", lambda n: ast.Call(n.func, n.args[:1], [])
    if isinstance(node.func, ast.Attribute) and node.func.attr == "get":
        yield "always default", lambda n: n.args[1]


def output(source: str, stdin: str) -> str | None:
    """Return the output of a program, without spaces at line ends; None if it fails or does not end."""
    steps = iter(range(_MOST_STEPS))
    written = io.StringIO()
    lines = iter(stdin.splitlines())
    names: dict[str, Any] = {
        "tick": lambda: next(steps),
        "input": lambda: next(lines),
        "distinct": dict.fromkeys,
        "print": lambda *values, **kw: print(*values, **kw, file=written),
        "sys": type("sys", (), {"stdin": stdin.splitlines()}),
    }
    try:
        exec(_compiled(source), names)
    except (Exception, SystemExit):
        return None
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines()).strip("\n")


@lru_cache(maxsize=512)
def _compiled(source: str) -> Any:
    """Return a program that counts the steps of its loops."""
    tree = ast.parse(source.replace("import sys\n", ""))
    for node in ast.walk(tree):
        if isinstance(node, ast.While | ast.For):
            node.body.insert(0, ast.parse("tick()").body[0])
    return compile(ast.fix_missing_locations(tree), "mutant", "exec")
