"""Episodes without tokens, as sent to the process that trains, and the metrics of batches and evaluations."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable

from gem_core.advantages._declaration import Need
from gem_core.advantages._stats import ReturnStats
from gem_core.rollout import Episode, episode_metrics
from gem_core.rollout._metrics import evaluation_metrics, without_tokens


def pack_outline(episode: Episode, needs: Collection[Need] = ()) -> str:
    """Return the parts of an episode for metrics and error messages, as JSON without tokens and texts.

    Args:
        episode: The episode.
        needs: What an estimator needs, which stays as well.
    """
    return json.dumps(without_tokens(episode, needs).to_dict())


def unpack_outline(text: str) -> Episode:
    """Return the episode from the output of `pack_outline`."""
    return Episode.from_dict(json.loads(text))


def evaluation_logs(played: Iterable[tuple[str, Episode]], pattern: str) -> dict[str, float]:
    """Return the metrics of an evaluation for each environment.

    Args:
        played: Pairs of the environment's name and the episode, for all episodes.
        pattern: Name of a metric, such as ``"eval/{env}/{metric}"``.
    """
    by_env: defaultdict[str, list[Episode]] = defaultdict(list)
    for env, episode in played:
        by_env[env].append(episode)
    return {
        pattern.format(env=env, metric=name): value
        for env, episodes in by_env.items()
        for name, value in evaluation_metrics(episodes).items()
    }


def batch_metrics(episodes: Iterable[Episode], stats: ReturnStats | None = None) -> dict[str, float]:
    """Return the metrics that every trainer logs for a batch.

    Args:
        episodes: All episodes of the batch, including failed ones.
        stats: Statistics of the returns; None and statistics over zero turns add no metrics.
    """
    metrics = episode_metrics(episodes)
    return metrics | stats.metrics() if stats is not None and stats.count else metrics
