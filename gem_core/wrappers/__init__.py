"""Wrappers that need neither a model nor a tool, and their names in the registry.

    env = gem_core.make("game:GuessTheNumber-v0", wrappers="time_limit(max_turns=5), concat_with_action")

The usual order, innermost first: tools, time limit, observation, statistics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core._registration import register_wrapper
from gem_core._util.lazy import lazy_names

if TYPE_CHECKING:
    from gem_core.wrappers._episode import EpisodeStatistics, TimeLimit
    from gem_core.wrappers._observation import Concat, ConcatWithAction
    from gem_core.wrappers._retry import Retry
    from gem_core.wrappers._summary import Summarize

__all__ = [
    "Concat",
    "ConcatWithAction",
    "EpisodeStatistics",
    "Retry",
    "Summarize",
    "TimeLimit",
]

_WRAPPERS = {
    "concat": "gem_core.wrappers._observation:Concat",
    "concat_with_action": "gem_core.wrappers._observation:ConcatWithAction",
    "episode_statistics": "gem_core.wrappers._episode:EpisodeStatistics",
    "episode_tracking": "gem_core.wrappers._episode:EpisodeStatistics",  # GEM's name
    "retry": "gem_core.wrappers._retry:Retry",
    "summarize": "gem_core.wrappers._summary:Summarize",
    "time_limit": "gem_core.wrappers._episode:TimeLimit",
}


def register() -> None:
    """Register the wrappers of the kernel."""
    for name, entry_point in _WRAPPERS.items():
        register_wrapper(name, entry_point)


__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "gem_core.wrappers._episode": ["EpisodeStatistics", "TimeLimit"],
        "gem_core.wrappers._observation": ["Concat", "ConcatWithAction"],
        "gem_core.wrappers._retry": ["Retry"],
        "gem_core.wrappers._summary": ["Summarize"],
    },
)
