"""Steps in one of several processes, for `test_ranks`: ``torchrun --nproc_per_node 2 -m ... FOLDER``.

The first step is the shared one, with a script instead of the model. The others have groups that are
split over the ranks, with sampled responses and one estimator each. Each rank writes what it consumed.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from gem_trl._dataset import tasks
from gem_trl._playing import Rollout

from gem_core.rollout import Episode
from tests.consistency.scenario import SAMPLES, TASKS, scenario
from tests.trainers.trl import harness, shared
from tests.trainers.trl.test_many_rows import rewritten

ESTIMATORS = ("rebn", "grpo", "rloo", "reinforce_plus_plus_baseline")
ROWS = 6
"""Rows per rank; with four samples per task, the second group is on both of two ranks."""


def lengths(episode: Episode) -> list[int]:
    return [len(turn.response_ids) for turn in episode.turns]


def score(completion_ids: Any, **_: Any) -> list[float | None]:
    """Reward the sum of the tokens; the answer of five tokens has no reward."""
    return [None if len(ids) == 5 else sum(ids) / 100 for ids in completion_ids]


def mixed(folder: Path) -> dict[str, Any]:
    """Train on a prompt with a reward function, with all samples on rank 0, and on a game on both ranks."""
    prompts = Dataset.from_dict({"prompt": ["<|user|>Hello.<|end|><|assistant|>"]})
    with pytest.MonkeyPatch.context() as monkeypatch:
        harness.answer_by_row(monkeypatch)
        trainer = harness.Spied(
            harness.MODEL,
            reward_funcs=score,
            args=harness.config(
                folder,
                per_device_train_batch_size=ROWS,
                gradient_accumulation_steps=1,
                num_generations=4,
                max_steps=1,
                loss_type="grpo",
                shuffle_dataset=False,
            ),
            train_dataset=[prompts, f"{harness.GAME}=2.0"],
            gem=replace(harness.gem(), estimator="reinforce", max_turns=2),
        )
        trainer.train()
    (metrics,) = trainer.logged("gem/return")
    (loss,) = trainer.losses
    rows = harness.rows_of_loss(loss)
    return {"rows": rows, "metrics": metrics, "loss": float(loss["loss"])}


def many_rows(folder: Path) -> dict[str, Any]:
    """Rewrite the histories of rank 0, which then has more rows than rank 1, and let one episode fail."""
    play = Rollout._play

    async def changed(self: Any, *given: Any) -> list[Episode]:
        episodes = await play(self, *given)
        if torch.distributed.get_rank():
            episodes[0].trainable, episodes[0].error = False, "failed"
            return episodes
        return [rewritten(episode) for episode in episodes]

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(Rollout, "_play", changed)
        trainer = harness.Spied(
            harness.MODEL,
            args=harness.config(
                folder,
                per_device_train_batch_size=ROWS,
                gradient_accumulation_steps=1,
                num_generations=4,
                max_steps=1,
                loss_type="grpo",
                beta=0.0,
            ),
            train_dataset=tasks([harness.GAME], ROWS),
            gem=harness.gem(max_turns=5),
        )
        harness.played_before(trainer, harness.GAME)
        trainer.train()
    (update,), (episodes,) = trainer.updates, trainer.rollouts
    return {"update": update, "episodes": episodes}


def main() -> None:
    folder, world = Path(sys.argv[1]), 2
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    made = scenario()
    with pytest.MonkeyPatch.context() as monkeypatch:
        shared.answer_from_script(monkeypatch, made.script)
        trainer = shared.make_trainer(folder, made, per_device_train_batch_size=TASKS * SAMPLES // world)
        trainer.train()
    (update,), (episodes,) = trainer.updates, trainer.rollouts
    found["shared"] = {"update": update, "carried": shared.carried(episodes)}
    for estimator in ESTIMATORS:
        trainer = harness.Spied(
            harness.MODEL,
            args=harness.config(
                folder,
                per_device_train_batch_size=ROWS,
                gradient_accumulation_steps=1,
                num_generations=4,
                max_steps=1,
            ),
            train_dataset=tasks([harness.GAME], ROWS),
            gem=replace(harness.gem(), estimator=estimator),
        )
        trainer.train()
        (update,), (episodes,) = trainer.updates, trainer.rollouts
        (metrics,) = trainer.logged("gem/return")
        found[estimator] = {
            "rows": update.rows,
            "episodes": [(e.seed, e.rewards, lengths(e), e.rows()[0].token_ids) for e in episodes],
            "metrics": metrics,
        }
    found["mix"] = mixed(folder)
    found["many rows"] = many_rows(folder)
    assert trainer.accelerator.num_processes == world
    torch.save(found, folder / f"rank-{trainer.accelerator.process_index}.pt")
    trainer.accelerator.wait_for_everyone()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
