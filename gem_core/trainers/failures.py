"""Episodes on their way from the process that played them to the one that trains, without their tokens."""

from __future__ import annotations

import json
from collections.abc import Iterable

from gem_core.advantages.stats import ReturnStats
from gem_core.rollout import Episode, episode_metrics, without_tokens


def pack_outline(episode: Episode) -> str:
    """Return an episode as JSON, without tokens and texts: what metrics and error messages need of it."""
    return json.dumps(without_tokens(episode).to_dict())


def unpack_outline(text: str) -> Episode:
    """Return the episode of `pack_outline`."""
    return Episode.from_dict(json.loads(text))


def batch_metrics(episodes: Iterable[Episode], stats: ReturnStats | None = None) -> dict[str, float]:
    """Return the metrics that every trainer logs for a batch.

    Args:
        episodes: All episodes of the batch, those that failed included.
        stats: Statistics of the returns; None, or those of no turn at all, add nothing.
    """
    metrics = episode_metrics(episodes)
    return metrics | stats.metrics() if stats is not None and stats.count else metrics
