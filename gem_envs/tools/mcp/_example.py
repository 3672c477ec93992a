"""A small MCP server for experiments: the time, a calculator, and a key-value store.

    python -m gem_envs.tools.mcp.example                 # over pipes
    python -m gem_envs.tools.mcp.example --port 8000     # http://localhost:8000/mcp

Each session has its own store and cannot see the keys of other sessions.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import operator
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from time import monotonic
from typing import Any

from gem_envs.serving._run import read_token
from gem_envs.tools.mcp import _sdk
from gem_envs.tools.mcp._config import TOKEN_VARIABLE
from gem_envs.tools.mcp._sdk import Context

_MOST_SESSIONS, _MOST_KEYS, _LONGEST_VALUE = 4096, 1000, 10_000
_IDLE = 3600.0
"""Seconds without a call after which the values of a session make room for others."""
_OPERATIONS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.USub: operator.neg, ast.UAdd: operator.pos,
}  # fmt: skip


def example_server() -> Any:
    """Return a new server with an empty store."""
    server = _sdk.Server("gem-core example", log_level="WARNING")
    stores: OrderedDict[str, tuple[float, dict[str, str]]] = OrderedDict()  # the last used one is last

    def store(context: Context) -> dict[str, str]:
        session, now = _sdk.session_of(context), monotonic()
        kept = stores.pop(session, (now, {}))[1]
        while stores and now - next(iter(stores.values()))[0] > _IDLE:
            stores.popitem(last=False)
        if len(stores) >= _MOST_SESSIONS:
            raise _sdk.ToolError("other sessions keep too many values; try again later")
        stores[session] = now, kept
        return kept

    @_sdk.tool(server)
    def time() -> str:
        """The time now, in UTC."""
        return datetime.now(timezone.utc).isoformat(timespec="seconds")

    @_sdk.tool(server)
    def calculate(expression: str) -> str:
        """The value of an expression of numbers with + - * / // % and parentheses."""
        try:
            return str(value_of(expression))
        except ValueError as error:
            raise _sdk.ToolError(str(error)) from None

    @_sdk.tool(server)
    def set_value(key: str, value: str, context: Context) -> str:
        """Keep a value under a key."""
        kept = store(context)
        if len(value) > _LONGEST_VALUE or (key not in kept and len(kept) >= _MOST_KEYS):
            raise _sdk.ToolError(f"at most {_MOST_KEYS} keys with {_LONGEST_VALUE} letters each")
        kept[key] = value
        return f"Kept {key}."

    @_sdk.tool(server)
    def get_value(key: str, context: Context) -> str:
        """The value that was kept under a key."""
        kept = store(context)
        if key not in kept:
            raise _sdk.ToolError(f"there is no key {key!r}")
        return kept[key]

    @_sdk.tool(server)
    def list_keys(context: Context) -> str:
        """The keys that have a value, one per line."""
        return "\n".join(sorted(store(context))) or "There are no keys."

    @_sdk.tool(server)
    async def wait(seconds: float) -> str:
        """Wait for some seconds, 60 at most."""
        await asyncio.sleep(min(60.0, seconds))
        return f"Waited. This is process {os.getpid()}."

    return server


def value_of(expression: str) -> int | float:
    """Return the value of an arithmetic expression.

    Raises:
        ValueError: The expression is invalid, or its value cannot be computed.
    """
    if len(expression) > 500:
        raise ValueError("the expression is longer than 500 letters")
    try:
        return _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, TypeError, ArithmeticError, RecursionError, MemoryError) as error:
        raise ValueError(f"cannot calculate {expression!r}: {error}") from None


def _value(node: ast.AST) -> int | float:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        value: int | float = _OPERATIONS[type(node.op)](_value(node.left), _value(node.right))
        return value
    if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATIONS:
        signed: int | float = _OPERATIONS[type(node.op)](_value(node.operand))
        return signed
    raise ValueError("only numbers with + - * / // % and parentheses are allowed")


def main(argv: Sequence[str] | None = None) -> None:
    """Run the server."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--port", type=int, help="serve over HTTP on this port")
    parser.add_argument("--host", default="127.0.0.1")
    args = parser.parse_args(argv)
    if args.port is None:
        example_server().run("stdio")
    else:
        token = read_token(None, TOKEN_VARIABLE)
        _sdk.run_http(example_server(), args.host, args.port, token)
