"""What plays an episode with a harness, a program that owns its loop; `gem_agents` registers it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from gem_core._util.registry import Registry
from gem_core.rollout._trajectory import Episode

ENTRY_POINT_GROUP = "gem_core.harnesses"
"""Entry points that register harnesses, and what plays with them."""

Runner = Callable[..., Coroutine[Any, Any, Episode]]
"""Plays an episode, with the arguments of `run_episode` after a harness."""

_runners: Registry[Callable[..., Any]] = Registry("runner", group=ENTRY_POINT_GROUP)


def register_runner(runner: Runner, resolve: Callable[[str], Any]) -> None:
    """Set the functions that play an episode with a harness, and find one by name; `gem_agents` does so."""
    _runners.register("run_harness", runner)
    _runners.register("resolve_harness", resolve)


def harness_runner() -> Runner:
    """Return the function that plays an episode with a harness."""
    return _runners.get("run_harness")


def require_harness(harness: str) -> None:
    """Raise a `GemError` if there is no such harness, or its program is not installed."""
    _runners.get("resolve_harness")(harness)
