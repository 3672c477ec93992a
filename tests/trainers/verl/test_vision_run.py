"""verl's own trainer and engine with a tiny vision-language model on figures."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gem_core.rollout import read_traces
from gem_core.train import TinyOptions, save_tiny
from tests.trainers.evidence import GAMMA, oracle
from tests.trainers.verl import harness
from tests.trainers.verl.spied import metrics_of, updates

pytestmark = [
    pytest.mark.skipif(
        not os.environ.get("GEM_CORE_VERL"), reason="runs the trainer: `nox -s verl-full` does"
    ),
    pytest.mark.full,
    pytest.mark.timeout(1200),
]
FIGURES = "vision:Geometry-v0-easy"


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Qwen2-VL that knows the form of an answer."""
    folder = tmp_path_factory.mktemp("model") / "seeing"
    few = {"vocab_size": 512, "corpus_episodes": 20, "warm_start_steps": 100, "warm_start_tokens": 20_000}
    save_tiny(folder, TinyOptions(envs=(FIGURES,), **few))
    return folder


def test_pictures_reach_the_engine_and_the_loss(tmp_path: Path, seeing: Path) -> None:
    run = harness.run_verl(
        tmp_path,
        seeing,
        "trainer.v1.trainer_mode=gem_sync",
        f"data.train_files=['{FIGURES}']",
        f"data.val_files=['{FIGURES}']",
        "trainer.total_training_steps=2",
        "+gem.wrappers=''",
        f"+gem.traces={tmp_path}/traces",
        pictures=True,
    ).check()
    _, *steps = metrics_of(run)
    assert [metrics["gem/error_rate"] for metrics in steps] == [0, 0]
    played = list(read_traces(tmp_path / "traces" / "train.jsonl"))
    assert all(episode.images() for episode in played)
    made = updates(run.spy)
    assert [len(update.rows) for update in made] == [8, 8]
    for number, update in enumerate(made, start=1):
        mine = [episode for episode in played if episode.metadata["step"] == number]
        advantages = oracle([[turn.reward for turn in episode.turns] for episode in mine], GAMMA)
        wanted = sorted(
            (episode.sequence().token_ids, pytest.approx(credit[0], abs=1e-5))
            for episode, credit in zip(mine, advantages, strict=True)
        )
        assert sorted(([*row.prompt, *row.response], row.advantages[0]) for row in update.rows) == wanted
        for row in update.rows:  # the actor saw what the engine saw: the tokens alone do not say which figure
            assert row.rollout is not None
            assert row.old == pytest.approx(row.rollout, abs=1e-3)
