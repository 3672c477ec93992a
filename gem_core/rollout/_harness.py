"""Harnesses: programs that own the loop of an agent, by name. `gem_agents` plays episodes with them.

    register_harness("my-agent", "my_package.agent:play")

An entry point of the group ``gem_core.harnesses`` names a function that registers its harnesses.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from gem_core._util.entry_points import check_entry_point
from gem_core._util.registry import Registry
from gem_core.errors import UnknownName
from gem_core.rollout._trajectory import Episode

ENTRY_POINT_GROUP = "gem_core.harnesses"

Runner = Callable[..., Coroutine[Any, Any, Episode]]
"""Plays an episode, with the arguments of `run_episode` after a harness."""

_harnesses: Registry[Any] = Registry("harness", group=ENTRY_POINT_GROUP)
_runners: Registry[Runner] = Registry("runner", group=ENTRY_POINT_GROUP)


def register_harness(name: str, entry_point: Any) -> None:
    """Make a harness available by name.

    Args:
        name: Name in configs and on the command line.
        entry_point: ``module:attribute``, or the harness itself; see `gem_agents._harness`.

    Raises:
        ConfigError: The name is taken by a different harness, or the entry point is malformed.
    """
    check_entry_point(f"harness {name!r}", entry_point)
    _harnesses.register(name, entry_point)


def find_harness(name: str) -> Any:
    """Return the entry point that is registered under a name; None if there is none."""
    try:
        return _harnesses.get(name)
    except UnknownName:
        return None


def list_harnesses() -> list[str]:
    """Return the sorted names of the registered harnesses."""
    return _harnesses.names()


def register_runner(runner: Runner) -> None:
    """Set the function that plays an episode with a harness; `gem_agents` does so."""
    _runners.register("run_harness", runner)


def harness_runner() -> Runner:
    """Return the function that plays an episode with a harness."""
    return _runners.get("run_harness")
