"""`EpisodeTrackingWrapper`, which gem_core calls `EpisodeStatistics`."""

from __future__ import annotations

from gem_core.wrappers import EpisodeStatistics as EpisodeTrackingWrapper

__all__ = ["EpisodeTrackingWrapper"]
