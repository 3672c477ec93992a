"""Agents that own their loop: a gateway in front of a policy, through which any program plays episodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gem_agents._ready import READY
from gem_agents._registry import register_harness
from gem_core._util.lazy import lazy_names
from gem_core.rollout._harness import runners

if TYPE_CHECKING:
    from gem_agents._harness import AgentTask, Command
    from gem_agents._run import run_harness
    from gem_core.rollout import Episode

__all__ = [
    "AgentTask",
    "Command",
    "register_harness",
    "run_harness",
]


def register() -> None:
    """Register the ready harnesses, and what plays episodes with one."""
    runners.register("run_harness", _play)
    runners.register("resolve_harness", _resolve)
    for name, entry_point in READY.items():
        register_harness(name, entry_point)


async def _play(*args: Any, **kwargs: Any) -> Episode:
    from gem_agents._run import run_harness

    return await run_harness(*args, **kwargs)


def _resolve(harness: str) -> None:
    from gem_agents._harness import resolve_harness

    resolve_harness(harness)


__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "gem_agents._harness": ["AgentTask", "Command"],
        "gem_agents._run": ["run_harness"],
    },
)
