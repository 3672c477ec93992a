"""Tools that a model can call during an episode.

    env = gem_core.make("math:Arithmetic-v0", wrappers="tools(tools='python')")

`base` defines the interface, `schema` checks the arguments of a call, `loop` runs async tools for sync
callers. A tool is imported when it is created; an installed package provides its own through the entry-point
group ``gem_core.tools``.
"""

from __future__ import annotations

from gem_core.tools.base import Tool, ToolResult, ToolState, list_tools, make_tools, register_tool

__all__ = ["Tool", "ToolResult", "ToolState", "list_tools", "make_tools", "register_tool"]

# name, entry point, required extra of gem-core
_TOOLS: tuple[tuple[str, str, str | None], ...] = (
    ("python", "gem_core.tools.python:PythonTool", None),
    ("search", "gem_core.tools.search.tool:SearchTool", None),
    ("mcp", "gem_core.tools.mcp.tool:mcp_tools", "mcp"),
    ("sqlite", "gem_core.tools.mcp.episode_database:sqlite_tools", "mcp"),
)

for _name, _entry_point, _extra in _TOOLS:
    register_tool(_name, _entry_point, extra=_extra)
