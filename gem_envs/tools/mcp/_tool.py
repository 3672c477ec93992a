"""`McpTool`, a function of an MCP server as a tool, and `mcp_tools`, which creates them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from gem_chat.tools import Tool, ToolResult, ToolState
from gem_core.errors import ConfigError
from gem_envs.tools import _loop
from gem_envs.tools.mcp import _sdk
from gem_envs.tools.mcp._config import ServerConfig, read_servers, server_config
from gem_envs.tools.mcp._pool import Holder, pool_of


class McpTool(Tool):
    """One function of an MCP server.

    Calls of all episodes share the connections of this process. If the server goes away, the calls in
    progress fail; the next call restarts it, or waits for it.

    Args:
        config: Configuration of the server.
        function: Name of the function on the server.
        name: Name by which the model calls the tool.
        description: Description for the model.
        parameters: JSON schema of the arguments.
    """

    stateful: ClassVar[bool] = False

    def __init__(
        self, config: ServerConfig, function: str, name: str, description: str, parameters: Mapping[str, Any]
    ) -> None:
        self.config, self.function = config, function
        self.name, self.description, self.parameters = name, description, parameters
        self.state_key = config.key if config.sessions == "episode" else None

    async def call(self, arguments: Mapping[str, Any], state: ToolState) -> ToolResult:
        if self.config.sessions == "episode" and state.live is None:
            state.live = Holder(pool_of(self.config))
        pool = pool_of(self.config) if state.live is None else state.live.pool
        reply = await _loop.on_background(pool.call(state.live, self.function, arguments))
        facts = {"server": self.config.name}
        if reply.content is None:
            return ToolResult(f"{self.name} failed: {reply.problem}", ok=False, metadata=facts)
        return ToolResult(as_text(reply.content), ok=not _sdk.is_error(reply.content), metadata=facts)

    def end(self, state: ToolState) -> None:
        if state.live is not None:
            _loop.submit(state.live.pool.release(state.live))
            state.live = None


def mcp_tools(
    command: str | None = None,
    url: str | None = None,
    config: str | None = None,
    only: Sequence[str] | None = None,
    **options: Any,
) -> list[Tool]:
    """Return the tools of one MCP server, or of all servers in a file.

        tools(tools="mcp(command='python -m gem_envs.tools.mcp.example', sessions='episode')")
        tools(tools="mcp(url='http://localhost:8000/mcp', only=['search'])")
        tools(tools="mcp(config='servers.json')")

    Args:
        command: Command line that starts the server.
        url: URL of a running server.
        config: File with several servers; see `gem_envs.tools.mcp._config.read_servers`.
        only: Names of the tools to use. None uses all.
        options: Other fields of `ServerConfig`, for every server that does not set its own.

    Raises:
        ConfigError: A value is invalid, or no server has a tool in `only`.
        ServiceError: A server cannot be reached.
    """
    if sum(value is not None for value in (command, url, config)) != 1:
        raise ConfigError("mcp: expected exactly one of command=, url=, and config=")
    try:
        if config is not None:
            servers = read_servers(config, **options)
        else:
            servers = [server_config(options.pop("name", "mcp"), command=command, url=url, **options)]
    except TypeError as error:
        raise TypeError(f"mcp: {error}") from None
    tools = [(server, tool) for server in servers for tool in _loop.run(pool_of(server).tools())]
    names = [tool.name for _, tool in tools]
    if missing := [name for name in only or () if name not in names]:
        raise ConfigError(f"mcp: unknown tools {', '.join(missing)}. Available: {', '.join(names) or 'none'}")
    chosen = [(server, tool) for server, tool in tools if only is None or tool.name in only]
    several = {name for name in names if len({id(server) for server, tool in tools if tool.name == name}) > 1}
    shown = _different(
        tool_name(f"{server.name}_{tool.name}" if tool.name in several else tool.name)
        for server, tool in chosen
    )
    return [
        McpTool(
            server,
            tool.name,
            name,
            tool.description or f"{tool.name} of the server {server.name}.",
            _sdk.tool_schema(tool),
        )
        for name, (server, tool) in zip(shown, chosen, strict=True)
    ]


def _different(names: Iterable[str]) -> list[str]:
    """Return the names with a number at the end of each one that was there before."""
    given: list[str] = []
    for name in names:
        number, new = 1, name
        while new in given:
            number += 1
            new = f"{name}_{number}"
        given.append(new)
    return given


def tool_name(name: str) -> str:
    """Return a valid tool name: other characters become ``_``, and the name starts with a letter."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
    return plain if plain[:1].isascii() and plain[:1].isalpha() else f"t_{plain}"


def as_text(result: Any) -> str:
    """Return the result of a call as text for the model."""
    return "\n".join(part.text for part in result.content) or "(The tool returned nothing.)"
