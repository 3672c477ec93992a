"""The environments of a server and its limits."""

from __future__ import annotations

from dataclasses import dataclass

from gem_bridges.openenv._hosts import InlineHost, SessionHost
from gem_core._util.checks import check_int, check_number


@dataclass(frozen=True)
class ServerLimits:
    """Limits of a server.

    Attributes:
        max_sessions: Maximum number of concurrent sessions; further clients get `CAPACITY_REACHED`.
        idle_timeout: Number of seconds without a message after which a session ends; None means never.
        drain_timeout: Number of seconds that a server shutting down gives running episodes.
        max_message: Maximum size of a message in bytes.
    """

    max_sessions: int = 16_384
    idle_timeout: float | None = 3600.0
    drain_timeout: float = 30.0
    max_message: int = 1 << 20

    def __post_init__(self) -> None:
        check_int("max_sessions", self.max_sessions, 1)
        check_number("idle_timeout", self.idle_timeout, above=0, optional=True)
        check_number("drain_timeout", self.drain_timeout, 0)
        check_int("max_message", self.max_message, 1024)


@dataclass(frozen=True)
class ServedEnv:
    """An environment of a server.

    Attributes:
        name: Its id, which is also its path.
        description: One line.
        host: Host that runs its sessions.
    """

    name: str
    description: str
    host: SessionHost

    @property
    def inline(self) -> bool:
        """Whether its sessions answer on the event loop."""
        return isinstance(self.host, InlineHost)
