"""Configuration of MCP servers."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from gem_core._util.checks import check_choice, check_int, check_number
from gem_core._util.foreign_json import read_json_file
from gem_core._util.urls import without_secrets
from gem_core.errors import ConfigError, DataError

TOKEN_VARIABLE = "GEM_CORE_MCP_TOKEN"
"""Environment variable with the token of a server over HTTP."""

Sessions = Literal["shared", "episode"]


@dataclass(frozen=True)
class ServerConfig:
    """One MCP server: a command that starts it, or the URL of a running one.

    Attributes:
        name: Name in messages, and prefix of a tool's name if two servers have a tool with the same name.
        command: Program to start; the server communicates over its pipes.
        args: Arguments of the program.
        env: Environment variables of the server, in addition to a few inherited ones such as PATH, HOME, and
            PYTHONPATH.
        cwd: Working folder of the server.
        url: URL of a server over streamable HTTP, such as ``http://localhost:8000/mcp``.
        headers: Headers of every request.
        sessions: "shared": one session serves all episodes, for a server without state between calls.
            "episode": each episode has its own session, and its own process if the server is a command.
        timeout: Time limit of a call, in seconds.
        connect_timeout: Seconds to wait until the server has started, or until a server that is down returns.
        concurrency: Maximum number of concurrent calls and, over HTTP, of connections.
        max_sessions: Maximum number of concurrent "episode" sessions; further episodes wait.
    """

    name: str = "mcp"
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    sessions: Sessions = "shared"
    timeout: float = 30.0
    connect_timeout: float = 60.0
    concurrency: int = 64
    max_sessions: int = 64

    def __post_init__(self) -> None:
        if (self.command is None) == (self.url is None):
            raise ConfigError(f"MCP server {self.name!r}: expected either command= or url=")
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            shown = without_secrets(self.url)
            raise ConfigError(f"MCP server {self.name!r}: url={shown!r}: expected http:// or https://")
        check_choice("sessions", self.sessions, get_args(Sessions))
        for name in ("timeout", "connect_timeout"):
            check_number(name, getattr(self, name), above=0)
        for name in ("concurrency", "max_sessions"):
            check_int(name, getattr(self, name), 1)

    @property
    def key(self) -> str:
        """Return a text that identifies the server and its settings."""
        return json.dumps(asdict(self), sort_keys=True, default=list)

    def __str__(self) -> str:
        where = self.url if self.url is not None else shlex.join([self.command or "", *self.args])
        return f"MCP server {self.name!r} ({without_secrets(where)})"


def read_servers(path: str | Path, **defaults: Any) -> list[ServerConfig]:
    """Return the servers in a file ``{"mcpServers": {"name": {"command": ..., "args": [...]}, ...}}``.

    Other programs use such files too, so unknown keys are ignored. `defaults` are the values of fields that a
    server does not set.

    Raises:
        DataError: The file cannot be read.
        ConfigError: The file does not contain such servers.
    """
    try:
        content = read_json_file(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as JSON: {error}") from None
    servers = content.get("mcpServers", content.get("servers")) if isinstance(content, dict) else None
    if not isinstance(servers, dict) or not all(isinstance(server, dict) for server in servers.values()):
        raise ConfigError(f"{path}: expected an object 'mcpServers' with an object for each server")
    known = {f.name for f in fields(ServerConfig)} - {"name"}
    return [
        server_config(name, **{**defaults, **{key: v for key, v in server.items() if key in known}})
        for name, server in servers.items()
        if not server.get("disabled")
    ]


def server_config(name: str, **options: Any) -> ServerConfig:
    """Create a server from plain values; a command without arguments may be a whole command line.

    Raises:
        ConfigError: A value is invalid.
        TypeError: A field is unknown.
    """
    command, args = options.get("command"), options.pop("args", ())
    if isinstance(command, str) and not args:
        command, *args = shlex.split(command) or [""]
    return ServerConfig(name, **{**options, "command": command or None, "args": tuple(args)})
