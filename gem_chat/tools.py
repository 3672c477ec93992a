"""Tools: what a model can call during an episode, and their registry."""

from __future__ import annotations

from gem_chat._tools import Tool, ToolCall, ToolResult, ToolState, make_tools, register_tool

__all__ = [
    "Tool",
    "ToolCall",
    "ToolResult",
    "ToolState",
    "make_tools",
    "register_tool",
]
