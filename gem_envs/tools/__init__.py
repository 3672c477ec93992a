"""Tools that a model can call during an episode, and the wrapper that gives them to an environment.

    env = gem_core.make("math:Arithmetic-v0", wrappers="tools(tools='python')")

`register_tools` is the entry point of the group ``gem_core.tools``; a tool is imported when it is created.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_chat.tools import register_tool
from gem_core import register_wrapper
from gem_core._util.lazy import lazy_names

if TYPE_CHECKING:
    from gem_envs.tools._wrapper import Tools

__all__ = [
    "Tools",
]

# name, entry point, required extra of gem-core
_TOOLS: tuple[tuple[str, str, str | None], ...] = (
    ("python", "gem_envs.tools._python:PythonTool", None),
    ("search", "gem_envs.tools.search._tool:SearchTool", None),
    ("mcp", "gem_envs.tools.mcp._tool:mcp_tools", "mcp"),
    ("sqlite", "gem_envs.tools.mcp._episode_database:sqlite_tools", "mcp"),
)
_PRESETS = (
    "python_tool",
    "python_tool_no_int_reward",
    "python_tool_no_int_reward_last_line_error",
    "search_tool",
    "search_tool_no_int_reward",
)


def register_tools() -> None:
    """Register the tools."""
    for name, entry_point, extra in _TOOLS:
        register_tool(name, entry_point, extra=extra)


def _register_wrappers() -> None:
    """Register the wrapper `tools` and the presets that have GEM's names."""
    register_wrapper("tools", "gem_envs.tools._wrapper:Tools")
    for name in _PRESETS:
        register_wrapper(name, f"gem_envs.tools._presets:{name}")


__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "gem_envs.tools._wrapper": ["Tools"],
    },
)
