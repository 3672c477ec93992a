"""OpenEnv: its environments as ours (``openenv:URL``), and ours behind its WebSocket protocol.

`server` and `sessions` serve environments, `env` and `client` play them, and both sides use `wire` and
`frames`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core._util.lazy import lazy_names

if TYPE_CHECKING:
    from gem_bridges.openenv._server import OpenEnvServer

__all__ = [
    "OpenEnvServer",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "gem_bridges.openenv._server": ["OpenEnvServer"],
    },
)
