"""Episodes without their tokens."""

from __future__ import annotations

import pytest

from gem_core.advantages import ReturnStats
from gem_core.rollout import Episode, Turn, episode_metrics
from gem_core.rollout._metrics import evaluation_metrics
from gem_core.trainers import batch_metrics
from gem_core.trainers._failures import evaluation_logs, pack_outline, unpack_outline

EPISODE = Episode(
    "env", 3, [Turn([1, 2], [3], [-0.5], 1.5, "question", "answer", "stop")], True, False, "terminated"
)
FAILED = Episode("env", 4, [], False, True, "env_error", error="boom", trainable=False)


def test_an_outline_keeps_what_metrics_need_and_no_text() -> None:
    text = pack_outline(EPISODE)
    assert "question" not in text
    assert "answer" not in text
    assert episode_metrics([unpack_outline(text)]) == episode_metrics([EPISODE])
    assert unpack_outline(pack_outline(FAILED)) == FAILED


def test_metrics_of_a_batch() -> None:
    stats = ReturnStats.from_returns([[1.5]])
    metrics = batch_metrics([EPISODE, FAILED], stats)
    assert metrics["gem/error_rate"] == 0.5
    assert metrics == pytest.approx(episode_metrics([EPISODE, FAILED]) | stats.metrics(), nan_ok=True)
    assert batch_metrics([FAILED], ReturnStats()) == batch_metrics([FAILED]) == episode_metrics([FAILED])


def test_an_evaluation_has_metrics_for_each_environment() -> None:
    logs = evaluation_logs([("a", EPISODE), ("b", FAILED), ("a", FAILED)], "eval/{env}/{metric}")
    for env, episodes in (("a", [EPISODE, FAILED]), ("b", [FAILED])):
        for name, value in evaluation_metrics(episodes).items():
            assert logs.pop(f"eval/{env}/{name}") == pytest.approx(value, nan_ok=True)
    assert not logs
