"""TRL's own trainer consumes the engine's tokens and the advantages of an independent computation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gem_core.tasks import EVAL_SEEDS
from tests.trainers.evidence import (
    assert_metrics_are_right,
    assert_update_is_right,
    env_ids,
    played,
    tasks_of,
)
from tests.trainers.trl import harness


def test_three_steps_on_a_mix(
    tmp_path: Path, spy: Path, tokenizer: Any, model: Any, own_ids: list[str]
) -> None:
    """The environments are new ones, a class in a file and an installed package."""
    options = harness.gem(wrappers="spy", estimator_options={"ddof": 1})
    trainer = harness.train(tmp_path, own_ids, options=options, task_seed=5)
    collected = [episode for rollout in trainer.rollouts for episode in rollout]
    assert {episode.env_id for episode in collected} == env_ids(*own_ids)
    assert not any(episode.seed in EVAL_SEEDS for episode in collected)
    assert {(episode.env_id, episode.seed) for episode in collected} <= tasks_of(own_ids, 64, 5)
    episodes = played(spy, tokenizer)
    assert len(trainer.updates) == 3
    for update, metrics in zip(trainer.updates, trainer.logged("gem/return"), strict=True):
        mine = assert_update_is_right(update, episodes, tokenizer, model, ddof=1)
        assert len(mine) == 8
        assert_metrics_are_right(metrics, mine, "reward")
    assert max(len(episode.rewards) for episode in episodes.values()) > 1
