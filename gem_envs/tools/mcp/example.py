"""A small MCP server: ``python -m gem_envs.tools.mcp.example``."""

from __future__ import annotations

from gem_envs.tools.mcp._example import main

__all__: list[str] = []


if __name__ == "__main__":
    main()
