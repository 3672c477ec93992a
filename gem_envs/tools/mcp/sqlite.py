"""An MCP server for SQLite databases: ``python -m gem_envs.tools.mcp.sqlite --database shop.db``."""

from __future__ import annotations

from gem_envs.tools.mcp._sqlite import main

__all__: list[str] = []


if __name__ == "__main__":
    main()
