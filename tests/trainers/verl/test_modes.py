"""GEM's trainer modes: the same advantages and metrics in verl's synchronous and asynchronous trainers."""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby

import pytest
import torch
from gem_verl._trainer import GemTrainer
from verl.trainer.ppo.v1 import get_trainer_cls

from gem_core.errors import ConfigError, UnsupportedTrainer
from tests.advantages.oracle import standardized, turn_returns
from tests.trainers.verl.configs import verl_config
from tests.trainers.verl.memory import MemoryQueue, make_trainer, play, update, use_memory_queue
from tests.trainers.verl.spied import assert_gae_is_right

MODES = ("gem_sync", "gem_colocate_async", "gem_separate_async")
TEXTS = {
    seed: [f"{seed} more", "2 more", f"{3 * seed}", "7 more", "break", "1 more", "0", "5", "9", "4"]
    for seed in (1, 2, 3, 4)
}
"""Four samples per prompt, some of several turns, one of which fails."""


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> MemoryQueue:
    return use_memory_queue(monkeypatch)


def played(mode: str, *overrides: str) -> GemTrainer:
    trainer = make_trainer(
        "algorithm.adv_estimator=rebn", "algorithm.gamma=0.5", "actor_rollout_ref.rollout.n=4", *overrides,
        mode=mode,
    )  # fmt: skip
    play(trainer, TEXTS, samples=4)
    return trainer


def turns_of(keys: list[str], queue: MemoryQueue) -> dict[str, list[tuple[float, float]]]:
    """Return the reward and the advantage of each turn by episode, read from the stored rows."""
    episodes: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for key in sorted(keys, key=lambda key: int(key.rsplit("_", 1)[1])):
        row = queue.rows["train"][key]
        tokens = zip(
            *(row[name].tolist() for name in ("response_mask", "rm_scores", "advantages")), strict=True
        )
        for mask, run in groupby(tokens, key=lambda token: token[0]):
            values = list(run)
            advantages = {advantage for _, _, advantage in values}
            assert len(advantages) == 1
            if mask:
                episodes[key.rsplit("_", 1)[0]].append((sum(v[1] for v in values), advantages.pop()))
            else:
                assert advantages == {0.0}
    return episodes


def assert_right(keys: list[str], queue: MemoryQueue) -> list[list[float]]:
    """Compare the advantages of an update with the oracle's; return the rewards of its episodes."""
    episodes = turns_of(keys, queue).values()
    rewards = [[reward for reward, _ in turns] for turns in episodes]
    returns = [value for turns in rewards for value in turn_returns(turns, 0.5)]
    expected = standardized(returns, returns, 0, 1e-8, 1e-6)
    assert [advantage for turns in episodes for _, advantage in turns] == pytest.approx(expected, abs=1e-5)
    return rewards


@pytest.mark.parametrize("rows", ["auto", "turn"])
@pytest.mark.parametrize("mode", MODES)
def test_advantages_and_metrics_of_a_step(mode: str, rows: str, queue: MemoryQueue) -> None:
    trainer = played(mode, f"+gem.rows={rows}")
    batch = update(trainer, queue, 4)
    rewards = assert_right(batch.keys, queue)
    turns = [len(episode) for episode in rewards]
    assert (len(rewards), max(turns)) == (12, 3)
    assert len(batch.keys) == (12 if rows == "auto" else sum(turns))
    metrics = trainer.step_metrics(batch)
    mean = sum(map(sum, rewards)) / len(rewards)
    assert metrics["gem/return"] == pytest.approx(mean)
    assert metrics["rebn/turns"] == sum(turns)
    assert metrics["gem/error_rate"] == pytest.approx(4 / 16)
    if rows == "turn":  # with one row per episode these are verl's own
        for name in ("critic/score", "critic/rewards"):
            assert metrics[f"{name}/mean"] == pytest.approx(mean)
            assert metrics[f"{name}/max"] == pytest.approx(max(map(sum, rewards)))
        for name in ("num_turns", "training/num_turns"):
            assert metrics[f"{name}/mean"] == pytest.approx(2 * sum(turns) / len(turns))
    assert trainer.step_metrics(batch).keys().isdisjoint({"gem/return", "rebn/turns"})


def test_gae_over_turns_reads_the_critic_where_each_response_begins(queue: MemoryQueue) -> None:
    words = ("algorithm.adv_estimator=gem_gae", "critic.enable=True", "algorithm.lam=0.8")
    trainer = played("gem_sync", *words)
    generator = torch.Generator().manual_seed(0)
    batch, _ = trainer.replay_buffer.sample(global_steps=1, partition_id="train", batch_size=4)
    for key in batch.keys:
        row = queue.rows["train"][key]
        row["old_log_probs"] = row["rollout_log_probs"]
        row["values"] = torch.randn(len(row["response_mask"]), generator=generator)
    trainer._compute_advantage(batch, {})
    names = ("response_mask", "rm_scores", "values", "advantages", "returns")
    saved = {name: [queue.rows["train"][key][name].tolist() for key in batch.keys] for name in names}
    assert max(len(list(groupby(mask))) for mask in saved["response_mask"]) > 3  # episodes of several turns
    assert_gae_is_right(saved, 0.5, 0.8)


def test_each_update_of_a_step_is_normalized_by_its_own_turns(queue: MemoryQueue) -> None:
    trainer = played("gem_separate_async", "+algorithm.rebn.scope=trained", "+gem.rows=turn")
    first, second = update(trainer, queue, 2), update(trainer, queue, 2)
    rewards = [assert_right(batch.keys, queue) for batch in (first, second)]
    assert {key[:2] for key in first.keys}.isdisjoint({key[:2] for key in second.keys})
    first.keys += second.keys
    first.tags += second.tags
    metrics = trainer.step_metrics(first)
    assert metrics["rebn/turns"] == sum(len(episode) for part in rewards for episode in part)
    assert metrics["gem/error_rate"] == pytest.approx(4 / 16)


def test_a_changed_mask_is_an_error(queue: MemoryQueue) -> None:
    trainer = played("gem_sync")
    for key, row in queue.rows["train"].items():
        if "_" in key and len(row["response_mask"]) > 3:
            row["response_mask"][1] = 0
    with pytest.raises(
        UnsupportedTrainer, match=r"the response mask has \d+ turns, but \d+ turns were played"
    ):
        update(trainer, queue, 4)


def test_penalties_count_in_the_rewards_of_turn_rows(queue: MemoryQueue) -> None:
    trainer = played("gem_sync", "+gem.rows=turn")
    batch = update(trainer, queue, 4)
    trainer.config.algorithm.use_kl_in_reward = True
    for key in batch.keys:
        queue.rows["train"][key]["token_level_rewards"] = queue.rows["train"][key]["rm_scores"] / 2
    metrics = trainer.step_metrics(batch)
    assert metrics["critic/rewards/mean"] == pytest.approx(metrics["critic/score/mean"] / 2)


@pytest.mark.parametrize(
    ("mode", "buffer", "parts"),
    [("gem_sync", "ReplayBuffer", 1), ("gem_colocate_async", "ReplayBufferAsync", 1),
     ("gem_separate_async", "ReplayBufferAsync", 4)],
)  # fmt: skip
def test_a_mode_is_verls_own_with_gems_manager(mode: str, buffer: str, parts: int) -> None:
    config = verl_config(
        "algorithm.adv_estimator=rebn",
        "+algorithm.rebn.scope=trained",
        f"trainer.v1.trainer_mode={mode}",
        "data.train_batch_size=64",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={64 // parts}",
        "actor_rollout_ref.rollout.nnodes=1",
        "actor_rollout_ref.rollout.checkpoint_engine.backend=nccl",
    )
    trainer = get_trainer_cls(mode)(config)
    assert type(trainer.replay_buffer).__name__ == buffer
    assert (trainer.trainer_mode, trainer.parameter_sync_step) == (mode.removeprefix("gem_"), parts)
    actor = trainer.config.actor_rollout_ref.actor
    assert trainer._mini_batches == [(actor, actor.ppo_mini_batch_size)]
    assert config.actor_rollout_ref.rollout.agent.agent_loop_manager_class == "gem_verl.GemAgentLoopManager"


def test_another_manager_is_kept() -> None:
    config = verl_config(
        "algorithm.adv_estimator=rebn",
        "trainer.v1.trainer_mode=gem_sync",
        "+actor_rollout_ref.rollout.agent.agent_loop_manager_class=mine.Manager",
    )
    get_trainer_cls("gem_sync")(config)
    assert config.actor_rollout_ref.rollout.agent.agent_loop_manager_class == "mine.Manager"


def test_the_config_is_checked_before_anything_is_built() -> None:
    config = verl_config("algorithm.adv_estimator=rebn", "trainer.v1.trainer_mode=gem_colocate_async")
    with pytest.raises(ConfigError, match="strategy=drop: drops old groups"):
        get_trainer_cls("gem_colocate_async")(config)
