"""`BaseTool`: GEM's interface of tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gem_chat._calls.formats import get_format
from gem_chat.tools import Tool, ToolResult, ToolState
from gem_envs.tools import _loop

ToolCallResult = tuple[bool, bool, str, str]
"""Whether there is a call, whether it failed, the observation, and the response up to the call."""


class BaseTool:
    """A tool that parses its own call from a response."""

    tool_type = "base"

    def __init__(self, num_workers: int = 1) -> None:
        """Store `num_workers`, which has no effect."""
        self.num_workers = num_workers

    @property
    def name(self) -> str:
        """Name of the tool."""
        return self.tool_type

    def instruction_string(self) -> str:
        """Return the text that explains the tool to the model."""
        raise NotImplementedError(f"{type(self).__name__} does not define instruction_string()")

    def execute_action(self, action: str) -> ToolCallResult:
        """Run the call in a response, if there is one."""
        raise NotImplementedError(f"{type(self).__name__} does not define execute_action()")


class NativeTool(BaseTool):
    """A tool of gem_core with GEM's interface; calls are written in the format ``gem``."""

    def __init__(self, build: Callable[[], Tool], show: Callable[[ToolResult], str]) -> None:
        super().__init__()
        self._build = build
        self._show = show
        self._tool: Tool | None = None

    @property
    def tool(self) -> Tool:
        """The tool, built on first use, because a search tool needs its server only then."""
        if self._tool is None:
            self._tool = self._build()
        return self._tool

    def instruction_string(self) -> str:
        return get_format("gem").instructions([self.tool])

    def execute_action(self, action: str) -> ToolCallResult:
        calls = get_format("gem").parse(action, [self.tool])
        if not calls:
            return False, True, "", action
        call = calls[0]
        if call.error is not None:
            return True, True, f"The call was not made: {call.error}.", action[: call.end]
        result = _loop.run(self._call(call.arguments))
        return True, not result.ok, self._show(result), action[: call.end]

    async def _call(self, arguments: Mapping[str, Any]) -> ToolResult:
        return await self.tool.call(arguments, ToolState())
