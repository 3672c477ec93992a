"""A run whose environment fails in every possible way, and the failures that its trainer must count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from gem_core.rollout import Episode
from tests.trainers.evidence import NAME, env_ids
from tests.trainers.spies import gem_trouble

gem_trouble.register()  # in this process, which makes the tasks

CHAOS = "test:Chaos-v0(min_number=1,max_number=10,max_turns=4,hang=6)"
"""A game that the warm model knows; constructor, reset, step, and close each fail with probability 0.1."""

STEP_TIMEOUT = "2"
"""In seconds; below `hang`, and longer than a call ever takes on a busy machine."""


def names_of(episodes: Sequence[Episode]) -> dict[str, str]:
    """Return the names that the spy gave the trainable episodes, and the task of each."""
    shown = {str(e.turns[0].observation): f"{e.env_id} {e.seed}" for e in episodes if e.trainable}
    return {found[1]: task for text, task in shown.items() if (found := NAME.search(text))}


def calm(episode: Episode) -> Episode:
    """Return the same episode in an environment that does not fail."""
    fails = episode.env_id in env_ids(CHAOS)
    return replace(episode, env_kwargs={**episode.env_kwargs, "p": 0}) if fails else episode


def assert_rates_are_right(metrics: dict[str, float], episodes: Sequence[Episode]) -> None:
    """Assert that a step logs the right shares of failed and of retried episodes."""
    failed = fmean(not episode.trainable for episode in episodes)
    again = fmean(episode.env_retries > 0 for episode in episodes)
    assert metrics["gem/error_rate"] == pytest.approx(failed)
    assert metrics["gem/retry_rate"] == pytest.approx(again)


def assert_every_failure_is_counted(episodes: Sequence[Episode], spy: Path) -> None:
    """Assert that each failure recorded by the environment is an episode's error or one of its retries."""
    noted = gem_trouble.chaos_counts(spy)
    planted = sum(number for (call, _), number in noted.items() if call != "close")
    counted = sum(episode.env_retries + (episode.error is not None) for episode in episodes)
    assert 0 < planted <= counted <= planted + 3  # on a busy machine a correct call may be late, too
