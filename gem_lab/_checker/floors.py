"""The floor of an environment: the success rate of a player that solves nothing.

`floors.json` holds the measured floors of the environments in this package; tools/floors.py in the
repository writes it. Other packages declare floors with `gem_core.register(..., floor=...)`.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gem_core import EnvSpec


class Floor(NamedTuple):
    """The best success rate of the null policies."""

    success: float
    """Share of successful episodes."""
    policy: str | None = None
    """Name of the best policy; None if the author declared the floor, or if no policy ever succeeded."""
    seeds: int | None = None
    """Number of episodes per policy, with seeds from 0 on; None if the author declared the floor."""


def documented(spec: EnvSpec) -> Floor | None:
    """Return the floor that the spec declares, or else the measured floor of its id, or None.

    The floor applies to the registered arguments.
    """
    if spec.floor is not None:
        return Floor(spec.floor)
    return _measured().get(spec.id)


@cache
def _measured() -> dict[str, Floor]:
    path = Path(__file__).with_name("floors.json")
    return {id: Floor(*values) for id, values in json.loads(path.read_text(encoding="utf-8")).items()}
