"""Tools of MCP servers (Model Context Protocol), and environments as such servers.

    env = gem_core.make("math:Arithmetic-v0",
    wrappers="tools(tools=\\"mcp(url='http://localhost:8000/mcp')\\")")

`mcp_tools` provides the tools of a server in an environment. `example` and `sqlite` are servers:
``python -m gem_envs.tools.mcp.sqlite``. Both major versions of the official package ``mcp`` are supported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core._util.lazy import lazy_names

if TYPE_CHECKING:
    from gem_envs.tools.mcp._pool import close_pools
    from gem_envs.tools.mcp._tool import mcp_tools

__all__ = [
    "close_pools",
    "mcp_tools",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "gem_envs.tools.mcp._pool": ["close_pools"],
        "gem_envs.tools.mcp._tool": ["mcp_tools"],
    },
)
