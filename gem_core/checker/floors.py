"""The floor of an environment: how often a player that solves nothing succeeds.

`floors.json` holds the measured floors of the environments that come with the package; tools/floors.py of
the repository writes it. Other packages declare theirs in `gem_core.register(..., floor=...)`.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gem_core.spec import EnvSpec


class Floor(NamedTuple):
    """The best success rate of the null policies."""

    success: float
    """Share of the episodes."""
    policy: str | None = None
    """Player that reached it; None where the author declared the floor, or where none ever succeeded."""
    seeds: int | None = None
    """Episodes of each player, seeds from 0 on; None where the author declared the floor."""


def documented(spec: EnvSpec) -> Floor | None:
    """The floor that the spec declares, else the measured one of its id; None when there is neither.

    It holds for the registered arguments.
    """
    if spec.floor is not None:
        return Floor(spec.floor)
    return _measured().get(spec.id)


@cache
def _measured() -> dict[str, Floor]:
    path = Path(__file__).with_name("floors.json")
    return {id: Floor(*values) for id, values in json.loads(path.read_text(encoding="utf-8")).items()}
