"""Numbers that every trainer logs about its episodes, under the same names."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from statistics import fmean

from gem_core.rollout.trajectory import Episode

_INFO_KEYS = ("invalid", "use_tool", "tool_error", "success", "metrics")
"""What `episode_metrics` reads of a turn's info."""


def episode_metrics(episodes: Iterable[Episode]) -> dict[str, float]:
    """Means over the trainable episodes, and how many were not.

    Returns:
        One number for each of these names, or only the first two when no episode is trainable, or
        nothing at all without episodes. All but the first two are over trainable episodes alone.

        - ``gem/error_rate``: share of all episodes that are not trainable: the environment failed, after
            all retries, or there is no turn.
        - ``gem/retry_rate``: share of all episodes that were played more than once because their
            environment failed (``on_env_error="retry"``).
        - ``gem/return``, ``gem/turns``: undiscounted return and number of turns.
        - ``gem/success``: share of episodes that solved the task.
        - ``gem/turns_to_success``: turns of those that did; missing when none did.
        - ``gem/truncation_rate``: share of episodes that a limit cut.
        - ``gem/format_error_rate``: share of turns without a readable action or cut by the length limit.
        - ``gem/tool_calls``: tool calls per episode.
        - ``gem/tool_errors``: those whose info says ``tool_error``.
        - ``gem/env/<name>``: a number in ``info["metrics"]`` of the last turn, over the episodes that
            have it; what is no finite number is left out.
    """
    everything = list(episodes)
    if not everything:
        return {}
    trained = [episode for episode in everything if episode.trainable]
    metrics = {
        "gem/error_rate": 1 - len(trained) / len(everything),
        "gem/retry_rate": fmean(episode.env_retries > 0 for episode in everything),
    }
    if not trained:
        return metrics
    infos = [turn.info for episode in trained for turn in episode.turns]
    tool_calls = [info for info in infos if info.get("use_tool")]
    metrics["gem/return"] = fmean(episode.total_reward for episode in trained)
    metrics["gem/success"] = fmean(episode.success for episode in trained)
    metrics["gem/turns"] = len(infos) / len(trained)
    if solved := [len(episode.turns) for episode in trained if episode.success]:
        metrics["gem/turns_to_success"] = fmean(solved)
    metrics["gem/truncation_rate"] = fmean(episode.truncated for episode in trained)
    metrics["gem/format_error_rate"] = fmean(info.get("invalid") in ("format", "length") for info in infos)
    metrics["gem/tool_calls"] = len(tool_calls) / len(trained)
    metrics["gem/tool_errors"] = sum(bool(info.get("tool_error")) for info in tool_calls) / len(trained)
    own: defaultdict[str, list[float]] = defaultdict(list)
    for episode in trained:
        given = episode.turns[-1].info.get("metrics")
        for name, value in given.items() if isinstance(given, dict) else ():
            if isinstance(value, int | float) and math.isfinite(value):
                own[name].append(float(value))
    return metrics | {f"gem/env/{name}": fmean(values) for name, values in sorted(own.items())}


def without_tokens(episode: Episode) -> Episode:
    """The episode without its tokens and texts: all that `episode_metrics` needs.

    Small enough to travel from the process that played it to the one that logs.
    """
    turns = [
        replace(
            turn,
            context_ids=[],
            response_ids=[],
            logprobs=None,
            observation="",
            action="",
            info={key: turn.info[key] for key in _INFO_KEYS if key in turn.info},
        )
        for turn in episode.turns
    ]
    return replace(episode, turns=turns, metadata={})
