"""Agents that own their loop: a gateway in front of a policy, through which any program plays episodes."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gem_core.rollout.harness import register_runner

if TYPE_CHECKING:
    from gem_agents.gateway import Gateway, GatewayLimits
    from gem_agents.harness import AgentTask, Command
    from gem_agents.run import run_harness
    from gem_core.rollout.trajectory import Episode

__all__ = ["AgentTask", "Command", "Gateway", "GatewayLimits", "register", "run_harness"]

_LAZY = {
    "AgentTask": "gem_agents.harness",
    "Command": "gem_agents.harness",
    "Gateway": "gem_agents.gateway",
    "GatewayLimits": "gem_agents.gateway",
    "run_harness": "gem_agents.run",
}


def register() -> None:
    """Register what plays episodes with a harness."""
    register_runner(_run)


async def _run(*args: Any, **kwargs: Any) -> Episode:
    from gem_agents.run import run_harness

    return await run_harness(*args, **kwargs)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
