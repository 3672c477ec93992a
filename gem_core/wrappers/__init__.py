"""Registry of wrappers; each is imported on first use.

    env = gem_core.make("game:GuessTheNumber-v0", wrappers="time_limit(max_turns=5), concat_with_action")

The usual order, innermost first: tools, time limit, observation, statistics.
"""

from __future__ import annotations

from gem_core.registration import register_wrapper

_WRAPPERS = {
    "concat": "gem_core.wrappers.observation:Concat",
    "concat_with_action": "gem_core.wrappers.observation:ConcatWithAction",
    "episode_statistics": "gem_core.wrappers.episode:EpisodeStatistics",
    "episode_tracking": "gem_core.wrappers.episode:EpisodeStatistics",  # GEM's name
    "retry": "gem_core.wrappers.retry:Retry",
    "time_limit": "gem_core.wrappers.episode:TimeLimit",
}


def register() -> None:
    """Register the wrappers of the kernel."""
    for name, entry_point in _WRAPPERS.items():
        register_wrapper(name, entry_point)
