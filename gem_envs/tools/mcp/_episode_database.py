"""The tools ``sqlite``: the database of an episode, over the MCP server of `gem_envs.tools.mcp.sqlite`.

One server serves all episodes of a process. The environment chooses the database of a call
(`ToolState.scope`); the model cannot.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from typing import Any, ClassVar

from gem_chat.tools import Tool, ToolResult, ToolState
from gem_envs.tools.mcp._database import folder
from gem_envs.tools.mcp._tool import McpTool, mcp_tools

_SCOPE = "database"


class DatabaseTool(McpTool):
    """One function of the server, applied to the database of the episode."""

    stateful: ClassVar[bool] = True
    """The environment holds the database."""

    async def call(self, arguments: Mapping[str, Any], state: ToolState) -> ToolResult:
        if state.scope is None:
            return ToolResult(f"{self.name} failed: this environment has no database", ok=False)
        return await super().call({**arguments, _SCOPE: state.scope}, state)


def sqlite_tools(timeout: float = 30.0) -> list[Tool]:
    """Return the tools for an environment with a database.

    Args:
        timeout: Time limit of a call, in seconds.

    Raises:
        ServiceError: The server does not start.
    """
    command = shlex.join([sys.executable, "-m", "gem_envs.tools.mcp.sqlite", "--folder", folder()])
    tools: list[Tool] = []
    for tool in mcp_tools(command=command, name="sqlite", timeout=timeout):
        assert isinstance(tool, McpTool)
        properties = {key: value for key, value in tool.parameters["properties"].items() if key != _SCOPE}
        parameters = {**tool.parameters, "properties": properties}
        tools.append(DatabaseTool(tool.config, tool.function, tool.name, tool.description, parameters))
    return tools
