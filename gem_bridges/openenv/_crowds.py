"""Places on a full server, which environments between two episodes give up; only for the background loop."""

from __future__ import annotations

import math
import time
from weakref import WeakSet

from gem_bridges.openenv._links import Link

CROWDED_SECONDS = 60.0
"""Seconds for which a server that was full counts as crowded."""
_full: dict[str, float] = {}
"""When a source was last full, by the monotonic clock."""
_resting: dict[str, WeakSet[Link]] = {}
"""Links between two episodes, by source."""


def is_full(source: str) -> None:
    """Note that a server has refused a session: end those of this process that no episode uses."""
    _full[source] = time.monotonic()
    for link in list(_resting.pop(source, ())):
        link.drop()


def rest(source: str, link: Link) -> None:
    """Note the end of an episode, and end its session if the server is crowded."""
    if time.monotonic() - _full.get(source, -math.inf) < CROWDED_SECONDS:
        link.drop()
    else:
        _resting.setdefault(source, WeakSet()).add(link)


def note_start(source: str, link: Link) -> None:
    """Note the start of an episode."""
    if source in _resting:
        _resting[source].discard(link)
