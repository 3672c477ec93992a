"""The environments of a server and its limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from gem_bridges.openenv._hosts import InlineHost, SessionHost
from gem_core._util.options import Bounds, check_options


@dataclass(frozen=True, kw_only=True)
class ServerLimits:
    """Limits of a server."""

    title: ClassVar = "limits"

    max_sessions: Annotated[
        int, "maximum concurrent sessions; further clients get CAPACITY_REACHED", Bounds(1)
    ] = 16_384
    idle_timeout: Annotated[
        float, "seconds without a message after which a session ends; 0 for never", Bounds(0)
    ] = 3600.0
    drain_timeout: Annotated[float, "seconds for running episodes to finish at shutdown", Bounds(0)] = 30.0
    max_message: Annotated[int, "maximum size of a message in bytes", Bounds(1024)] = 1 << 20

    def __post_init__(self) -> None:
        check_options(self)


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
