"""Paired differences between two evaluations: `paired_differences`.

    before, after = read_run("runs/before"), read_run("runs/after")
    differences = paired_differences(before.episodes, after.episodes)
    differences["overall"]["success"]       # {"mean": 0.12, "se": 0.04, "low": 0.04, "high": 0.2}

All runs play the same tasks, so the difference of two runs is estimated task by task: the difficulty of the
tasks cancels, and the interval is narrower than the intervals of the two runs suggest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import fmean
from typing import Any

from gem_core.rollout import Episode
from gem_lab.eval._intervals import drop_empty_interval, estimate, estimate_strata

_MEASURES: dict[str, Callable[[Episode], float]] = {
    "return": lambda episode: episode.total_reward,
    "success": lambda episode: float(episode.success),
}


def paired_differences(base: Iterable[Episode], other: Iterable[Episode]) -> dict[str, Any]:
    """Return the differences ``other - base`` over the tasks that both evaluations have scored.

    Args:
        base: Episodes of the evaluation to compare with.
        other: Episodes of the evaluation to compare; its options may differ.

    Returns:
        A dictionary with these keys:

        - ``envs``: maps each common environment to ``tasks``, the number of common tasks, and the estimates
          of ``return`` and ``success``: ``mean``, ``se``, and the 95% interval from ``low`` to ``high`` by
          the bootstrap over tasks (null if all differences are equal).
        - ``overall``: the same over all environments with equal weights; ``tasks`` is the sum, and the
          bootstrap is stratified by environment.
    """
    ours, theirs = _by_task(base), _by_task(other)
    strata: dict[str, dict[str, list[list[float]]]] = {}
    for key, mine in ours.items():
        if key not in theirs:
            continue
        measures = strata.setdefault(key[0], {name: [] for name in _MEASURES})
        for name, measure in _MEASURES.items():
            measures[name].append([fmean(map(measure, theirs[key])) - fmean(map(measure, mine))])
    overall: dict[str, Any] = {"tasks": sum(len(measures["return"]) for measures in strata.values())}
    for name in _MEASURES:
        overall[name] = drop_empty_interval(estimate_strata([measures[name] for measures in strata.values()]))
    envs = {
        label: {
            "tasks": len(measures["return"]),
            **{name: drop_empty_interval(estimate(measures[name])) for name in _MEASURES},
        }
        for label, measures in strata.items()
    }
    return {"overall": overall, "envs": envs}


def _by_task(episodes: Iterable[Episode]) -> dict[tuple[str, Any, Any, Any], list[Episode]]:
    """Group the scored episodes by environment, task number, seed, and item."""
    tasks: dict[tuple[str, Any, Any, Any], list[Episode]] = {}
    for episode in episodes:
        if episode.error is None:
            metadata = episode.metadata
            key = str(metadata["env"]), metadata["task"], episode.seed, metadata.get("item")
            tasks.setdefault(key, []).append(episode)
    return tasks
