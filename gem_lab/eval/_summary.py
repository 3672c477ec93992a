"""Statistics of a set of episodes: means with their uncertainty, pass@k, turns, errors.

    summary = summarize(episodes)
    summary["return"]       # {"mean": 0.41, "se": 0.03, "low": 0.35, "high": 0.47}
    summary["pass_at"]      # {"1": 0.38, "2": 0.52, "4": 0.66}

Episodes with the same environment and seed are samples of one task. Standard errors and intervals treat
tasks as independent, and the samples of a task as dependent.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from gem_core.rollout import Episode, episode_metrics
from gem_core.rollout._metrics import by_task
from gem_lab.eval._intervals import average, drop_empty_interval, estimate, estimate_rate, estimate_strata


def summarize(episodes: Iterable[Episode]) -> dict[str, Any]:
    """Return the statistics of episodes of one environment, as JSON-serializable data.

    An episode whose environment failed, or whose first prompt did not fit, provides no evidence about the
    policy: it is counted under ``errors`` and excluded from everything else. An episode without a turn
    because the policy gave no answer counts as a failure with a return of 0.

    Returns:
        A dictionary with these keys:

        - ``episodes``, ``tasks``, ``errors``: counts; ``episodes`` counts the scored episodes.
        - ``items``: number of distinct data-set items played; null for an environment without items.
        - ``return``, ``success``, ``turns``: ``mean``, ``se`` (standard error over tasks; null for one
          task) and the 95% interval from ``low`` to ``high``: Wilson's for ``success``, and the bootstrap
          over tasks for the others (null if all tasks have the same value).
        - ``pass_at``: for k = 1, 2, 4, ... up to the smallest number of samples of any task, the
          probability that at least one of k samples solves the task, by the unbiased estimator.
        - ``metrics``: `episode_metrics`, with the names that every trainer logs.
        - ``invalid``, ``stop_reasons``: counts by kind.
        - ``prompt_tokens``, ``response_tokens``: totals over all requests; null if they were not counted.
    """
    everything = list(episodes)
    scored = [episode for episode in everything if episode.error is None]
    tasks = by_task(scored)
    kinds = Counter(
        str(turn.info["invalid"]) for episode in scored for turn in episode.turns if turn.info.get("invalid")
    )
    return {
        "episodes": len(scored),
        "tasks": len(tasks),
        "items": _items(scored),
        "errors": len(everything) - len(scored),
        "return": drop_empty_interval(estimate(_returns(tasks))),
        "success": estimate_rate([[float(episode.success) for episode in samples] for samples in tasks]),
        "turns": drop_empty_interval(
            estimate([[float(len(episode.turns)) for episode in samples] for samples in tasks])
        ),
        "pass_at": _pass_at(tasks),
        "metrics": episode_metrics(everything),
        "invalid": dict(sorted(kinds.items())),
        "stop_reasons": dict(sorted(Counter(episode.stop_reason for episode in scored).items())),
        "prompt_tokens": _tokens(scored, "prompt_tokens"),
        "response_tokens": _tokens(scored, "response_tokens"),
    }


def pass_at_k(samples: int, solved: int, k: int) -> float:
    """Return the probability that at least one of `k` samples, drawn without replacement, is solved."""
    if not 1 <= k <= samples:
        raise ValueError(f"k={k}: expected a number from 1 to {samples}, the number of samples")
    return 1 - math.comb(samples - solved, k) / math.comb(samples, k)


def summarize_envs(envs: Mapping[str, Iterable[Episode]]) -> dict[str, Any]:
    """Return the statistics of each environment, and their mean with equal weights.

    Args:
        envs: Episodes by environment.

    Returns:
        A dictionary with these keys:

        - ``envs``: maps each environment to its `summarize`.
        - ``overall``: ``episodes``, ``tasks``, ``errors``, ``prompt_tokens``, and ``response_tokens`` are
          sums. ``return`` and ``success`` average the environments with equal weights; the interval of
          ``return`` is a bootstrap over tasks stratified by environment, and the interval of ``success``
          combines the Wilson intervals.
    """
    episodes = {label: list(played) for label, played in envs.items()}
    summaries = {label: summarize(played) for label, played in episodes.items()}
    whole: dict[str, Any] = {
        name: sum(summary[name] for summary in summaries.values()) for name in ("episodes", "tasks", "errors")
    }
    scored = [[episode for episode in played if episode.error is None] for played in episodes.values()]
    whole["return"] = drop_empty_interval(estimate_strata([_returns(by_task(played)) for played in scored]))
    whole["success"] = average([summary["success"] for summary in summaries.values()])
    for name in ("prompt_tokens", "response_tokens"):
        counts = [summary[name] for summary in summaries.values()]
        whole[name] = None if None in counts else sum(counts)
    return {"overall": whole, "envs": summaries}


def _returns(tasks: Sequence[Sequence[Episode]]) -> list[list[float]]:
    return [[episode.total_reward for episode in samples] for samples in tasks]


def _items(episodes: Iterable[Episode]) -> int | None:
    items = {episode.metadata["item"] for episode in episodes if "item" in episode.metadata}
    return len(items) or None


def _pass_at(tasks: Sequence[Sequence[Episode]]) -> dict[str, float]:
    fewest = min(map(len, tasks), default=0)
    chances = {}
    k = 1
    while k <= fewest:
        chances[str(k)] = fmean(pass_at_k(len(task), sum(e.success for e in task), k) for task in tasks)
        k *= 2
    return chances


def _tokens(episodes: Iterable[Episode], name: str) -> int | None:
    """Return the number of tokens that the endpoint reported, or else the number in the episodes."""
    total = 0
    for episode in episodes:
        if episode.context_mode != "messages":
            prompts, responses = episode.prompts(), [turn.response_ids for turn in episode.turns]
            total += sum(map(len, prompts if name == "prompt_tokens" else responses))
            continue
        for turn in episode.turns:
            count = turn.info.get("reply", {}).get(name)
            if count is None:
                return None
            total += int(count)
    return total
