"""Metrics of episodes, which every trainer logs under the same names."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from gem_core.rollout._trajectory import Episode

METRICS = (
    "gem/return",
    "gem/success",
    "gem/turns",
    "gem/turns_to_success",
    "gem/truncation_rate",
    "gem/format_error_rate",
    "gem/tool_calls",
    "gem/tool_errors",
    "gem/forged_tokens",
    "gem/error_rate",
    "gem/retry_rate",
)
"""Names of the metrics of `episode_metrics` that do not depend on the environment."""

HARNESS_METRICS = (
    "gem/recognized",
    "gem/foreign_answers",
    "gem/rows",
    "gem/lost",
    "gem/refused",
    "gem/harness_errors",
)
"""Names of the further metrics of episodes that a harness plays."""

_INFO_KEYS = ("invalid", "use_tool", "tool_error", "forged_tokens", "success", "metrics", "agent")
"""Keys of a turn's info that `episode_metrics` and `Episode.agent` read."""


def episode_metrics(episodes: Iterable[Episode]) -> dict[str, float]:
    """Return the error rates of all episodes and the means over the trainable ones.

    Returns:
        Metric by name; empty without episodes. If no episode is trainable, only the first two metrics are
        present, and those of a harness. All others are computed over the trainable episodes.

        - ``gem/error_rate``: share of all episodes that are not trainable, because the environment failed
            after all retries or because there is no turn.
        - ``gem/retry_rate``: share of all episodes that were played more than once because their
            environment failed (``on_env_error="retry"``).
        - ``gem/return``, ``gem/turns``: undiscounted return and number of turns.
        - ``gem/success``: share of episodes that solved the task.
        - ``gem/turns_to_success``: number of turns in successful episodes; missing if there are none.
        - ``gem/truncation_rate``: share of episodes that a limit cut.
        - ``gem/format_error_rate``: share of turns without a readable action or cut by the length limit.
        - ``gem/tool_calls``: turns with tool calls, per episode.
        - ``gem/tool_errors``: those of them whose info has ``tool_error`` set, per episode.
        - ``gem/forged_tokens``: special tokens per episode that texts of the environment spell, such as
            ``<|im_end|>`` on a web page; see `gem_chat._special_tokens`.
        - ``gem/recognized``, ``gem/foreign_answers``: of the answers in the histories of an agent, the share
            that was sampled here, and the number per episode that was not. These and the next four are there
            if a harness played, over all of its episodes.
        - ``gem/rows``: rows of tokens per episode.
        - ``gem/lost``: sampled responses per episode that no agent got, and that are not trained.
        - ``gem/refused``: requests per episode that got an error, such as those after the end.
        - ``gem/harness_errors``: share of episodes whose agent failed.
        - ``gem/env/<name>``: mean of a number in ``info["metrics"]`` of the last turn, over the episodes
            that report it; values that are not finite numbers are ignored.
    """
    everything = list(episodes)
    if not everything:
        return {}
    trained = [episode for episode in everything if episode.trainable]
    metrics = {
        "gem/error_rate": 1 - len(trained) / len(everything),
        "gem/retry_rate": fmean(episode.env_retries > 0 for episode in everything),
        **_harness_metrics([episode for episode in everything if "gateway" in episode.metadata]),
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
    metrics["gem/forged_tokens"] = sum(info.get("forged_tokens", 0) for info in infos) / len(trained)
    own: defaultdict[str, list[float]] = defaultdict(list)
    for episode in trained:
        own_metrics = episode.turns[-1].info.get("metrics")
        for name, value in own_metrics.items() if isinstance(own_metrics, dict) else ():
            if isinstance(value, int | float) and math.isfinite(value):
                own[name].append(float(value))
    return metrics | {f"gem/env/{name}": fmean(values) for name, values in sorted(own.items())}


def _harness_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return the `HARNESS_METRICS`; empty if no harness played."""
    if not episodes:
        return {}
    shares, counts = [], [episode.metadata["gateway"] for episode in episodes]
    for count in counts:
        own = count["recognized"] + count["spliced"]
        every = own + count["foreign"]
        shares.append(own / every if every else 1.0)
    names = {"foreign_answers": "foreign", "rows": "rows", "lost": "lost", "refused": "refused"}
    return {
        "gem/recognized": fmean(shares),
        **{f"gem/{name}": fmean(count[key] for count in counts) for name, key in names.items()},
        "gem/harness_errors": fmean("harness_error" in episode.metadata for episode in episodes),
    }


def without_tokens(episode: Episode, needs: Collection[str] = ()) -> Episode:
    """Return a copy of the episode without tokens and texts, which `episode_metrics` does not need.

    The copy is small enough to send from the process that played the episode to the one that trains.

    Args:
        episode: The episode.
        needs: What an estimator needs. "state_keys" keeps the keys of the states after the first turn's;
            the first is the same in all episodes of a task. "reward_components" keeps these.
    """
    keys = [*_INFO_KEYS, *(["reward_components"] if "reward_components" in needs else [])]
    infos = [{key: turn.info[key] for key in keys if key in turn.info} for turn in episode.turns]
    if "state_keys" in needs:
        for info, key in zip(infos, episode.state_keys()[1:], strict=False):
            info["state_key"] = key
    turns = [
        replace(
            turn,
            context_ids=[],
            response_ids=[],
            logprobs=None,
            observation="",
            action="",
            info=info,
        )
        for turn, info in zip(episode.turns, infos, strict=True)
    ]
    kept = {key: value for key, value in episode.metadata.items() if key in ("gateway", "harness_error")}
    return replace(episode, turns=turns, metadata=kept)


def evaluation_metrics(episodes: Iterable[Episode]) -> dict[str, float]:
    """Return the metrics of an evaluation during training: the usual metrics and their standard errors.

    Returns:
        `episode_metrics`, plus ``gem/return_se`` and ``gem/success_se`` if there are at least two tasks.
    """
    everything = list(episodes)
    metrics = episode_metrics(everything)
    tasks = by_task([episode for episode in everything if episode.trainable])
    if len(tasks) > 1:
        metrics["gem/return_se"] = standard_error([fmean(e.total_reward for e in task) for task in tasks])
        metrics["gem/success_se"] = standard_error([fmean(e.success for e in task) for task in tasks])
    return metrics


def by_task(episodes: Iterable[Episode]) -> list[list[Episode]]:
    """Return the episodes of each task, which is an environment with its arguments and a seed."""
    tasks: dict[str, list[Episode]] = {}
    for index, episode in enumerate(episodes):
        seed = f"none {index}" if episode.seed is None else episode.seed
        key = json.dumps([episode.env_id, episode.env_kwargs, seed], sort_keys=True)
        tasks.setdefault(key, []).append(episode)
    return list(tasks.values())


def standard_error(means: Sequence[float] | NDArray[np.float64]) -> float:
    """Return the standard error of the mean of at least two independent values."""
    return float(np.std(np.asarray(means, dtype=np.float64), ddof=1) / math.sqrt(len(means)))
