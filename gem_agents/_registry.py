"""Harnesses by name.

    register_harness("my-agent", "my_package.agent:play")

An entry point of the group ``gem_core.harnesses`` names a function that registers its harnesses.
"""

from __future__ import annotations

from typing import Any

from gem_core._util.entry_points import check_entry_point
from gem_core._util.registry import Registry
from gem_core.rollout._harness import ENTRY_POINT_GROUP

harnesses: Registry[Any] = Registry("harness", group=ENTRY_POINT_GROUP)


def register_harness(name: str, entry_point: Any) -> None:
    """Make a harness available by name.

    Args:
        name: Name in configs and on the command line.
        entry_point: ``module:attribute``, or the harness itself; see `gem_agents._harness`.

    Raises:
        ConfigError: The name is taken by a different harness, or the entry point is malformed.
    """
    check_entry_point(f"harness {name!r}", entry_point)
    harnesses.register(name, entry_point)
