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

_runners: Registry[Runner] = Registry("runner", group=ENTRY_POINT_GROUP)


def register_runner(runner: Runner) -> None:
    """Set the function that plays an episode with a harness; `gem_agents` does so."""
    _runners.register("run_harness", runner)


def harness_runner() -> Runner:
    """Return the function that plays an episode with a harness."""
    return _runners.get("run_harness")
