"""Settings of TRL that change how rows are split, scored, or weighted, but not their advantages."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import concatenate_datasets
from gem_trl import _policies
from gem_trl._dataset import tasks

from gem_core.rollout import Episode
from gem_lab._engines.sampling import BatchingPolicy
from tests.trainers import chaos
from tests.trainers.evidence import GAMMA, oracle
from tests.trainers.trl import harness
from tests.trainers.trl.harness import Spied, rows_of_loss

assert chaos  # registers environments

LOSSES = [
    {"loss_type": "grpo"},
    {"loss_type": "dr_grpo"},
    {"loss_type": "bnpo"},
    {"loss_type": "cispo", "epsilon_high": 5.0},
    {"loss_type": "sapo"},
    {"loss_type": "luspo", "importance_sampling_level": "sequence"},
    {"loss_type": "vespo"},
]
SETTINGS = [
    *LOSSES,
    {"importance_sampling_level": "sequence", "steps_per_generation": 4, "max_steps": 2},
    {"num_iterations": 2, "max_steps": 2},
    {"steps_per_generation": 4, "max_steps": 2},
    {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8},
    {"beta": 0.05},
    {"bf16": True},
    {"gradient_checkpointing": True},
    {"temperature": 0.7, "top_p": 0.9, "top_k": 50},
    {"max_completion_length": 20},
    {"pad_to_multiple_of": 16},
    {"off_policy_mask_threshold": 0.5, "steps_per_generation": 4, "max_steps": 2},
    {"top_entropy_quantile": 0.5},
    {"entropy_coef": 0.01},
]


def expected_rows(rollouts: list[list[Episode]], wanted: Any = oracle) -> dict[tuple[int, ...], list[float]]:
    """Return the advantages of the completion tokens of each trainable episode, by its tokens."""
    rows = {}
    for rollout in rollouts:
        trainable = [episode for episode in rollout if episode.trainable]
        for episode, turns in zip(trainable, wanted([e.rewards for e in trainable], GAMMA), strict=True):
            row = episode.rows()[0]
            ids = row.turn_ids[row.prompt_length :]
            rows[tuple(row.token_ids)] = [turns[turn] if turn >= 0 else 0.0 for turn in ids]
    return rows


def assert_losses_are_right(trainer: Spied, wanted: Any = oracle, times: int = 1) -> None:
    """Check that the loss consumed each episode `times` times, with the advantages of its turns."""
    expected = expected_rows(trainer.rollouts, wanted)
    seen: dict[tuple[int, ...], int] = dict.fromkeys(expected, 0)
    assert any(any(advantages) for advantages in expected.values())
    for loss in trainer.losses:
        assert math.isfinite(float(loss["loss"]))
        for row in rows_of_loss(loss):
            if row.is_pad:
                assert not any(row.advantages)
                continue
            key = (*row.prompt, *row.response)
            assert row.advantages == pytest.approx(expected[key], abs=1e-5)
            seen[key] += 1
    assert set(seen.values()) == {times}


@pytest.mark.parametrize("changes", SETTINGS, ids=str)
def test_the_loss_consumes_the_advantages_of_turns(
    changes: dict[str, Any], tmp_path: Path, spy: Path
) -> None:
    trainer = harness.train(tmp_path, **{"max_steps": 1, **changes})
    assert_losses_are_right(trainer, times=changes.get("num_iterations", 1))
    limit = changes.get("max_completion_length", 256)
    assert max(len(row.response) for loss in trainer.losses for row in rows_of_loss(loss)) <= limit
    end, _, gradients = trainer.optimizer_steps[0]
    if any(loss["advantages"].any() for loss in trainer.losses[:end]):
        assert any(gradient.any() for gradient in gradients if gradient is not None)


def test_the_sampler_has_the_options_of_the_trainer(
    tmp_path: Path, spy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[dict[str, Any]] = []

    class Recorded(BatchingPolicy):
        def __init__(self, model: Any, **options: Any) -> None:
            made.append(options)
            super().__init__(model, **options)

    monkeypatch.setattr(_policies, "BatchingPolicy", Recorded)
    harness.train(tmp_path, max_steps=1, temperature=0.7, top_p=0.8, top_k=5, seed=3)
    found = {(options["temperature"], options["top_p"], options["top_k"]) for options in made}
    assert found == {(0.7, 0.8, 5)}
    assert all(options["seed"].startswith("3/") for options in made)


@pytest.mark.parametrize("rows", [1, 4], ids="micro-batches of {}".format)
@pytest.mark.parametrize("loss", [{"loss_type": "dapo"}, *LOSSES], ids=lambda loss: loss["loss_type"])
def test_a_failed_episode_counts_in_no_divisor_of_the_loss(
    loss: dict[str, Any], rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of four episodes fail; two epochs over them move the weights as epochs over the other two."""
    harness.answer_by_row(monkeypatch)
    both = concatenate_datasets([tasks("test:Endless", 1), tasks("test:Raises", 1)])
    moves = []
    for dataset in (both, both.select([0])):
        size = 2 * len(dataset)
        settings = {
            "per_device_train_batch_size": min(rows, size),
            "gradient_accumulation_steps": max(1, size // rows), "num_iterations": 2, "max_steps": 2,
            "beta": 0.1, "shuffle_dataset": False, "optim": "sgd", "learning_rate": 0.1, **loss,
        }  # fmt: skip
        options = harness.gem(estimator="reinforce", max_turns=2)
        trainer = harness.Spied(
            harness.MODEL, args=harness.config(tmp_path, **settings), train_dataset=dataset, gem=options
        )
        harness.played_before(trainer, "test:Raises")
        trainer.train()
        masks = [(loss["completion_mask"] * loss["tool_mask"]).any(1) for loss in trainer.losses]
        assert (sum(map(len, masks)), int(sum(map(sum, masks)))) == (2 * size, 4)
        first, last = trainer.optimizer_steps[0][1], trainer.model.parameters()
        moves.append([after.detach() - before for before, after in zip(first, last, strict=True)])
    assert max(move.abs().max() for move in moves[1]) > 1e-3
    torch.testing.assert_close(*moves, atol=1e-6, rtol=1e-4)


def leave_one_out(rewards: list[list[float]], gamma: float) -> list[list[float]]:
    """Return the advantages of RLOO with two episodes per task."""
    totals = [math.fsum(r * gamma**turn for turn, r in enumerate(episode)) for episode in rewards]
    other = [totals[index + 1 - 2 * (index % 2)] for index in range(len(totals))]
    return [[mine - its] * len(r) for mine, its, r in zip(totals, other, rewards, strict=True)]


def test_an_estimator_that_compares_the_episodes_of_a_task(tmp_path: Path, spy: Path) -> None:
    trainer = harness.train(tmp_path, max_steps=2, options=harness.gem(estimator="rloo", wrappers="spy"))
    assert_losses_are_right(trainer, leave_one_out)


@pytest.mark.parametrize("estimator", ["reinforce_plus_plus", "gigpo", "mt_grpo", "opo", "maxrl", "dr_grpo"])
def test_every_estimator_runs(estimator: str, tmp_path: Path, spy: Path) -> None:
    trainer = harness.train(tmp_path, max_steps=1, options=harness.gem(estimator=estimator, wrappers="spy"))
    assert all(torch.isfinite(loss["advantages"]).all() for loss in trainer.losses)
    assert any(loss["advantages"].any() for loss in trainer.losses)


def test_lora(tmp_path: Path, spy: Path) -> None:
    from peft import LoraConfig

    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.0)
    trainer = harness.train(tmp_path, max_steps=2, peft_config=lora)
    assert_losses_are_right(trainer)
    assert 0 < sum(gradient is not None for gradient in trainer.optimizer_steps[0][2]) < 20
    for loss in trainer.losses:  # the sampler used the adapter of the last update
        for row in rows_of_loss(loss):
            on = [n for n, m in enumerate(row.mask) if m]
            assert row.rollout is not None
            assert [row.old[n] for n in on] == pytest.approx([row.rollout[n] for n in on], abs=1e-4)


def test_the_table_of_completions_shows_the_advantages_of_turns(tmp_path: Path, spy: Path) -> None:
    trainer = harness.train(tmp_path, max_steps=1, log_completions=True, num_completions_to_print=0)
    (rollout,) = trainer.rollouts
    wanted = [math.fsum(turns) / len(turns) for turns in oracle([e.rewards for e in rollout], GAMMA)]
    assert list(trainer._logs["advantages"]) == pytest.approx(wanted, abs=1e-6)
