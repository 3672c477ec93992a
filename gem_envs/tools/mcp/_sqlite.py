"""An MCP server for SQLite databases: list and describe tables, read, write.

    python -m gem_envs.tools.mcp.sqlite --database shop.db               # over pipes
    python -m gem_envs.tools.mcp.sqlite --database shop.db --port 8000   # http://localhost:8000/mcp
    python -m gem_envs.tools.mcp.sqlite --folder databases               # many: each call names one

Statements run under the limits of `gem_envs.tools.mcp._database`, in processes that end when they take too
long; see `gem_envs.tools.mcp._limited`. The statements of one call form one
transaction.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from gem_envs.serving._run import read_token
from gem_envs.tools.mcp import _sdk
from gem_envs.tools.mcp._config import TOKEN_VARIABLE
from gem_envs.tools.mcp._database import SECONDS, path_of
from gem_envs.tools.mcp._limited import LimitedError, run_limited

_LONGEST = 20_000
_AT_ONCE = 64
_FUNCTION = "gem_envs.tools.mcp._database:run_sql"
_Query = Annotated[str, Field(examples=["SELECT count(*) FROM orders WHERE year = 2020"])]
_Statements = Annotated[str, Field(examples=["UPDATE orders SET year = 2021 WHERE id = 7"])]


def sqlite_server(find: Callable[[str], Path], seconds: float = SECONDS) -> Any:
    """Return the server.

    Args:
        find: Maps the argument ``database`` of a call to a file; raises ValueError if there is no such file.
        seconds: Limit of CPU time of a call, in seconds.
    """
    server = _sdk.Server("gem-core sqlite", log_level="WARNING")
    threads = ThreadPoolExecutor(_AT_ONCE)  # which wait; each statement has a process of its own

    async def work(database: str, sql: str, write: bool) -> str:
        if len(sql) > _LONGEST:
            raise _sdk.ToolError(f"at most {_LONGEST} letters of SQL in one call")
        call = partial(run_limited, _FUNCTION, seconds, sql=sql, write=write)
        try:
            path = str(find(database))
            text: str = await asyncio.get_running_loop().run_in_executor(threads, partial(call, path=path))
        except (LimitedError, ValueError) as error:
            reason = "it took too long and was stopped" if "interrupted" in str(error) else str(error)
            raise _sdk.ToolError(f"Error, nothing was changed: {reason}") from None
        return text

    @_sdk.tool(server)
    async def list_tables(database: str = "") -> str:
        """The tables and views of the database."""
        query = "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name"
        return await work(database, query, False)

    @_sdk.tool(server)
    async def describe_table(table: str, database: str = "") -> str:
        """How a table or view was created, with its indexes and triggers."""
        name = table.replace("'", "''")
        source = f"FROM sqlite_master WHERE tbl_name = '{name}' AND sql IS NOT NULL"
        if (await work(database, f"SELECT count(*) {source}", False)).endswith("\n0"):
            raise _sdk.ToolError(
                f"there is no table or view {table[:100]!r}; list_tables returns their names"
            )
        return await work(database, f"SELECT type, sql {source} ORDER BY rowid", False)

    @_sdk.tool(server)
    async def query(sql: _Query, database: str = "") -> str:
        """Read: run one SELECT and return its rows, 200 at most."""
        return await work(database, sql, False)

    @_sdk.tool(server)
    async def execute(sql: _Statements, database: str = "") -> str:
        """Write: run one or more SQL statements with semicolons between them, all of them or none."""
        return await work(database, sql, True)

    return server


def main(argv: Sequence[str] | None = None) -> None:
    """Run the server."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--database", type=Path, help="path of the database")
    where.add_argument("--folder", type=Path, help="folder of NAME.db files; each call names one")
    parser.add_argument("--port", type=int, help="serve over HTTP on this port")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="limit of CPU time of a call")
    args = parser.parse_args(argv)
    if args.database is not None and not args.database.is_file():
        parser.error(f"{args.database} is not a file")
    server = sqlite_server(lambda name: args.database or path_of(args.folder, name), args.seconds)
    if args.port is None:
        server.run("stdio")
    else:
        _sdk.run_http(server, args.host, args.port, read_token(None, TOKEN_VARIABLE))
