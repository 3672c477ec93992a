"""A failed episode does not affect others in verl's worker, replay buffer, padding, and estimators."""

from __future__ import annotations

import itertools
import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gem_verl import _loop as gem_loop
from gem_verl._trainer import GemTrainer
from omegaconf import open_dict
from transfer_queue import KVBatchMeta
from verl import DataProto
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.trainer.ppo.ray_trainer import compute_advantage

from gem_core.errors import EnvError
from tests.trainers.verl.memory import TOKENIZER, MemoryQueue, make_trainer, play, update, use_memory_queue


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> MemoryQueue:
    return use_memory_queue(monkeypatch)


def wanted(rows: list[dict[str, Any]], trainer: GemTrainer) -> list[torch.Tensor]:
    """Return the advantages of only these rows, from verl's own dispatch of estimators."""
    padded = {
        name: torch.nn.utils.rnn.pad_sequence([row[name].float() for row in rows], batch_first=True)
        for name in ("rm_scores", "response_mask")
    }
    data = DataProto.from_dict(
        tensors={
            "token_level_rewards": padded["rm_scores"],
            "response_mask": padded["response_mask"],
        },
        non_tensors={"uid": np.array([row["uid"] for row in rows], dtype=object)},
    )
    algorithm = trainer.config.algorithm
    result = compute_advantage(data, algorithm.adv_estimator, gamma=1.0, config=algorithm).batch["advantages"]
    return [result[index, : len(row["responses"])] for index, row in enumerate(rows)]


ESTIMATORS = (
    "grpo", "grpo_vectorized", "rloo", "rloo_vectorized", "reinforce_plus_plus",
    "reinforce_plus_plus_baseline", "opo", "gpg", "rebn", "gem_grpo", "gem_rloo",
)  # fmt: skip


def test_the_others_get_the_advantages_they_would_get_without_it(
    queue: MemoryQueue, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = make_trainer()
    texts = {
        1: ["3", "break", "8", "1"], 2: ["5", "5", "5", "9"], 3: ["break", "break", "6", "2"],
        4: ["break"] * 4, 5: ["break", "7", "break", "break"],
    }  # fmt: skip
    with caplog.at_level(logging.ERROR, logger="verl.trainer.ppo.v1.agent_loop_tq"):
        play(trainer, texts)
    batch, _ = trainer.replay_buffer.sample(global_steps=1, partition_id="train", batch_size=5)
    batch = upsample_batch_to_divisible_size(batch, 20, TOKENIZER.eos_token_id)
    for row in queue.rows["train"].values():  # verl computes them on its workers
        row["old_log_probs"] = row["rollout_log_probs"]
    kept = [key for key in batch.keys if sum(queue.rows["train"][key]["response_mask"])]
    rows = [queue.rows["train"][key] for key in kept]
    assert sorted(float(row["rm_scores"].sum()) for row in rows) == [1, 2, 3, 5, 5, 5, 6, 7, 8, 9]
    metrics: dict[str, float] = {}
    for estimator in ESTIMATORS:
        trainer.config.algorithm.adv_estimator = estimator
        done = trainer._compute_advantage(batch, {})
        metrics = metrics or trainer.step_metrics(batch)
        assert (done.keys, done.tags) == (batch.keys, batch.tags)
        for row, advantages in zip(rows, wanted(rows, trainer), strict=True):
            torch.testing.assert_close(row["advantages"], advantages, msg=estimator)
        assert (len(done.keys), len(kept)) == (20, 10)
        for key in set(done.keys) - set(kept):
            pad = queue.rows["train"][key]
            assert len(pad["advantages"]) == len(pad["returns"]) == len(pad["responses"])
            assert not any(pad["advantages"])
    assert metrics["gem/error_rate"] == pytest.approx(10 / 20)
    assert metrics["gem/return"] == pytest.approx(5.1)
    assert "4 of 4 episodes cannot be trained on" in caplog.text  # the prompt without any sample left


def test_estimators_get_the_facts_about_the_episodes(queue: MemoryQueue) -> None:
    trainer = make_trainer()
    play(trainer, {1: ["3", "break", "8", "1"], 2: ["5", "5", "5", "9"]})
    batch, _ = trainer.replay_buffer.sample(global_steps=1, partition_id="train", batch_size=2)
    rows = queue.rows["train"]
    for row in rows.values():
        row["old_log_probs"] = row["rollout_log_probs"]
    best = next(key for key in batch.keys if float(rows[key]["rm_scores"].sum()) == 9)

    def returns_and_advantages(name: str, *options: str) -> dict[str, tuple[float, float]]:
        trainer.config.algorithm.adv_estimator = name
        with open_dict(trainer.config):
            trainer.config.algorithm[name] = dict(option.split("=") for option in options)
        trainer._compute_advantage(batch, {})
        return {
            key: (float(rows[key]["rm_scores"].sum()), float(rows[key]["advantages"][0]))
            for key in batch.keys
        }

    plain = returns_and_advantages("rebn")
    by_env = returns_and_advantages("rebn", "statistics=env")  # one environment
    assert [value for _, value in by_env.values()] == pytest.approx([value for _, value in plain.values()])
    scores = [score for score, _ in plain.values()]
    assert len(set(scores)) > 2
    rae = returns_and_advantages("rae")
    for score, advantage in rae.values():  # one agent
        assert advantage == pytest.approx(score - (sum(scores) - score) / (len(scores) - 1), abs=1e-5)
    rows[best]["extra_fields"]["gem"]["episode"] |= {"terminated": False, "truncated": True}
    masked = returns_and_advantages("rebn", "truncation=mask")
    rest = [score for key, (score, _) in masked.items() if key != best]
    mean, std = np.mean(rest), np.std(rest)
    for key, (score, advantage) in masked.items():
        assert advantage == pytest.approx(0.0 if key == best else (score - mean) / std, abs=1e-5)
    assert trainer.step_metrics(batch)["rebn/turns"] == 4 * len(scores) - 1


def test_an_update_with_failed_episodes_only_names_the_environment_and_the_cause(
    queue: MemoryQueue,
) -> None:
    trainer = make_trainer("algorithm.adv_estimator=grpo")
    play(trainer, {7: ["break"] * 2, 8: ["break"] * 2})
    with pytest.raises(EnvError, match=r"test:VerlPicky.*seed [78].*RuntimeError: told to break"):
        trainer._step_once({}, {}, 2)


@pytest.mark.parametrize(("metric", "filtered"), [("reward", {"u2"}), ("gem/success", {"u1", "u2"})])
def test_group_filters_see_the_other_episodes_only(
    metric: str, filtered: set[str], queue: MemoryQueue
) -> None:
    trainer = make_trainer(
        "algorithm.adv_estimator=grpo",
        "algorithm.filter_groups.enable=True",
        f"algorithm.filter_groups.metric={metric}",
    )
    play(trainer, {1: ["3", "break", "8"], 2: ["5", "5", "break"], 3: ["break"] * 3, 4: ["break", "1"]})
    trainer.replay_buffer._sync_metadata_from_transfer_queue()
    assert trainer.replay_buffer._dapo_filtered_keys("train")[0] == filtered


def test_a_filter_compares_the_returns_of_episodes_with_turn_rows(queue: MemoryQueue) -> None:
    trainer = make_trainer(
        "algorithm.adv_estimator=rebn",
        "+gem.rows=turn",
        "algorithm.filter_groups.enable=True",
        "algorithm.filter_groups.metric=gem/return",
        "+algorithm.rebn.scope=trained",
    )
    texts = ["0.1 more", "0 more", "0"] * 2  # numpy's standard deviation of six times 0.1 is not 0
    play(trainer, {1: texts, 2: [*texts[:-1], "0.3"]}, samples=2)
    trainer.replay_buffer._sync_metadata_from_transfer_queue()
    assert len(queue.rows["train"]) == 2 + 2 * 6
    assert trainer.replay_buffer._dapo_filtered_keys("train")[0] == {"u1"}


def test_validation_counts_a_failed_episode_in_its_error_rate_only(
    queue: MemoryQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer()
    play(trainer, {1: ["4"], 2: ["break"], 3: ["2"], 4: ["break"]}, validate=True)
    rows = queue.rows["val"]
    keys = [key for key in rows if "_" in key]
    infos: dict[str, list[Any]] = {"reward": [float(rows[key]["rm_scores"].sum()) for key in keys]}
    for name in gem_loop.METRICS:
        infos[name] = [rows[key]["extra_fields"]["reward_extra_info"][name] for key in keys]
    columns = (["picky"] * 4, [key.split("_")[0] for key in keys])
    turns = [rows[key]["num_turns"] for key in keys]
    result = trainer._val_metrics_update(*columns, infos, turns)
    assert result["val-core/picky/reward/mean@1"] == 3.0
    assert result["val-aux/picky/gem/success/mean@1"] == 1.0
    assert result["val-aux/picky/gem/error_rate/mean@1"] == 0.5
    assert result["val-aux/num_turns/mean"] == 2.0


@pytest.mark.parametrize("model", ["actor", "critic"])
@pytest.mark.parametrize("mode", ["seq-mean-token-mean", "seq-mean-token-sum", "token-mean"])
def test_a_loss_over_rows_divides_by_those_that_were_played(
    mode: str, model: str, queue: MemoryQueue
) -> None:
    from verl.trainer.ppo.core_algos import agg_loss

    sizes = ("actor_rollout_ref.actor.ppo_mini_batch_size=4", "critic.ppo_mini_batch_size=4")
    trainer = make_trainer(*sizes, "actor_rollout_ref.rollout.n=2")
    play(trainer, {1: ["3", "break"], 2: ["5", "6"], 3: ["break"] * 2, 4: ["1", "2"]})
    batch, _ = trainer.replay_buffer.sample(global_steps=1, partition_id="train", batch_size=4)
    batch = upsample_batch_to_divisible_size(batch, 8, TOKENIZER.eos_token_id)
    seen = {}

    def update(given: KVBatchMeta) -> Any:
        seen.update(given.extra_info)
        output = {"metrics": {"mfu": [0.0]}}
        return output if model == "actor" else SimpleNamespace(get=lambda: output)

    workers = SimpleNamespace(update_actor=update, train_mini_batch=update)
    trainer.actor_rollout_wg = trainer.critic_wg = workers
    (trainer._update_actor if model == "actor" else trainer._update_critic)(batch, {})
    assert workers.update_actor is workers.train_mini_batch is update
    masks = [queue.rows["train"][key]["response_mask"].float() for key in batch.keys]
    mask = torch.nn.utils.rnn.pad_sequence(masks, batch_first=True)
    loss = torch.rand(mask.shape)
    size = seen["global_batch_size"]
    result = agg_loss(loss, mask, mode, batch_num_tokens=int(mask.sum()), global_batch_size=size)
    played = mask.sum(1) > 0
    torch.testing.assert_close(result, agg_loss(loss[played], mask[played], mode))


def mini_batches(rows: int, ranks: int, size: int) -> list[list[int]]:
    """Return the rows of each mini-batch, cut as verl's dispatch and its workers cut a batch."""
    per_rank, part = rows // ranks, size // ranks
    return [
        [rank * per_rank + n for rank in range(ranks) for n in range(first, first + part)]
        for first in range(0, per_rank, part)
    ]


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("mode", ["seq-mean-token-mean", "token-mean"])
def test_no_mini_batch_consists_of_rows_that_fill_the_batch(
    ranks: int, mode: str, queue: MemoryQueue
) -> None:
    from verl.trainer.ppo.core_algos import agg_loss

    trainer = make_trainer("actor_rollout_ref.actor.ppo_mini_batch_size=2", "actor_rollout_ref.rollout.n=2")
    trainer.use_critic, trainer.tokenizer = False, TOKENIZER
    trainer._mini_batches = [(trainer.config.actor_rollout_ref.actor, 2)]
    mapping = {"actor": list(range(ranks))}
    trainer.actor_rollout_wg = SimpleNamespace(_dispatch_info=mapping)
    texts = {seed: ["3", "break"] if seed % 2 else ["4", "5"] for seed in range(1, 7)}
    texts[7] = ["break", "break"]
    play(trainer, texts, samples=2)
    batch, _ = trainer.replay_buffer.sample(global_steps=1, partition_id="train", batch_size=7)
    assert len(batch) == 9
    batch = trainer._balance_batch(batch, {})
    pads = [bool(tag.get("is_padding")) for tag in batch.tags]
    assert (len(pads), sum(pads)) == (12, 3)
    parts = mini_batches(12, ranks, 4)
    assert sorted(row for part in parts for row in part) == list(range(12))
    assert all(sum(pads[row] for row in part) == 1 for part in parts)
    masks = [queue.rows["train"][key]["response_mask"].float() for key in batch.keys]
    mask = torch.nn.utils.rnn.pad_sequence(masks, batch_first=True)
    for part in parts:
        tokens = int(mask[part].sum())
        loss = agg_loss(
            torch.ones(len(part), mask.shape[1]),
            mask[part],
            mode,
            batch_num_tokens=tokens,
            global_batch_size=3,
        )
        assert loss == pytest.approx(1.0)


@pytest.mark.parametrize("mode", ["gem_colocate_async", "gem_separate_async"])
def test_an_environment_that_always_fails_ends_an_asynchronous_run(mode: str, queue: MemoryQueue) -> None:
    """verl replaces prompts without an episode, forever."""
    words = ("algorithm.adv_estimator=rebn", "data.train_batch_size=2")
    trainer = make_trainer(*words, mode=mode)
    seeds = itertools.count(10)
    calls = []

    def refill(count: int) -> None:
        calls.append(count)
        assert sum(calls) < 50
        play(trainer, {next(seeds): ["break", "break"] for _ in range(count)})

    trainer.replay_buffer.refill_fn = refill
    play(trainer, {1: ["3", "4"], 2: ["break", "break"]})  # one of the two prompts has finished
    with pytest.raises(
        EnvError, match=r"8 prompts one after the other: no episode .*VerlPicky.*told to break"
    ):
        trainer.replay_buffer.sample(global_steps=1, partition_id="train", batch_size=2)
    assert sum(calls) == 7


def test_failed_prompts_are_replaced_on_request(queue: MemoryQueue) -> None:
    words = ("trainer.v1.sampler.sync_refill_failed_groups=True", "data.gen_batch_size=1")
    trainer = make_trainer(*words, "algorithm.adv_estimator=gem_rloo", "data.train_batch_size=2")
    trainer.replay_buffer.refill_fn = lambda count: play(trainer, {20 + n: ["6", "8"] for n in range(count)})
    play(trainer, {1: ["3", "break"], 2: ["break", "break"]})
    batch = update(trainer, queue, 2)
    assert sorted(batch.keys) == ["u1_0_0", "u20_0_0", "u20_1_0"]
    metrics = trainer.step_metrics(batch)
    assert metrics["gem/error_rate"] == pytest.approx(3 / 6)  # the replaced ones count as well
    assert queue.rows["train"]["u20_0_0"]["advantages"][0] == pytest.approx(-2.0)


COUNT_FILL_ROWS = {
    "perf/total_num_tokens",
    "perf/throughput",
    "timing_per_token_ms/gen",
    "timing_per_token_ms/adv",
    "prompt_length/clip_ratio",  # relative to the longest prompt, and fill rows have one of 127 tokens
}
"""Metrics of verl that the rows that fill a batch change; the page names them."""


def test_metrics_leave_out_the_rows_that_fill_a_batch(queue: MemoryQueue) -> None:
    found = []
    for multiple in (1, 8):
        trainer = make_trainer("algorithm.adv_estimator=rebn")
        trainer.use_critic, trainer._rollout_moe_lb_metrics_accumulator = False, None
        trainer.resource_pool_manager = SimpleNamespace(get_n_gpus=lambda: 1)
        play(trainer, {1: ["3 more", "4", "1"], 2: ["break", "2"]}, samples=2)
        batch, _ = trainer.replay_buffer.sample(global_steps=1, partition_id="train", batch_size=2)
        batch = upsample_batch_to_divisible_size(batch, multiple, TOKENIZER.eos_token_id)
        for row in queue.rows["train"].values():
            row["old_log_probs"] = row["rollout_log_probs"]
        trainer._compute_advantage(batch, {})
        metrics: dict[str, float] = {"actor/grad_norm": 1.0}
        timing = {"step": 1.0, "gen": 1.0, "adv": 1.0}
        trainer._compute_metrics(batch, metrics, timing, global_steps=1, epoch=0)
        found.append(metrics)
        queue.rows.clear(), queue.tags.clear()
    alone, filled = found
    assert alone.keys() == filled.keys()
    assert len(alone) > 60
    changed = {name for name in alone if alone[name] != pytest.approx(filled[name])}
    assert changed == COUNT_FILL_ROWS | {"gem/filled"}
    assert alone["response_length/mean"] > 1
