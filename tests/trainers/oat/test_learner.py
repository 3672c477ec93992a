"""The learner computes advantages from the rows and the statistics that come with them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from gem_oat._learner import CriticLearner, Learner
from gem_oat._rows import draw_turns, pack_turns, turn_values
from gem_oat._tasks import Progress
from oat.algorithms.ppo import PPOLearner
from oat.algorithms.ppo_multiturn import PPOMultiTurnLearner
from oat.learners.rl import RLLearner

from gem_chat import AppendContext
from gem_core import Env
from gem_core.advantages import Estimator, ReturnStats
from gem_core.errors import EnvError, UnsupportedTrainer
from gem_core.rollout import Episode, Generation, Turn, run_episode
from gem_core.rollout._sources import SourceLedger
from gem_core.trainers import EstimatorChoice, read_estimator
from tests.advantages.oracle import standardized, turn_returns
from tests.rollout.tokenizers import CharTokenizer

GAMMA = 0.9


@pytest.fixture(scope="module", autouse=True)
def one_process() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def learner(estimator: str = "rebn", **options: Any) -> Any:
    """Return a learner without models."""
    made: Any = Learner.__new__(Learner)
    made.args = SimpleNamespace(dump_all_buffer=False, rollout_batch_size_per_device=4)
    made.actor_info, made.prompt_consumed, made._ledger = {}, 0, SourceLedger()
    made._choice = read_estimator(estimator, options)
    made._collected, made.pi_buffer, made.query_step, made._stats = [], [], 0, ReturnStats()
    made._same_actor_group = dist.group.WORLD
    made.steps, made._done, made._computed = 1, Progress(0, [0], {}), False
    made.args.num_gpus_per_actor = 1
    return made


def collected(rewards: list[list[float]], wanted: int, estimator: str = "rebn") -> list[Any]:
    """Return the rows that an actor sends for episodes with these rewards."""
    episodes = [
        Episode("t", n, [Turn([1], [2, 3], [0.0, 0.0], r, "", "", "stop") for r in of], True, False,
                "terminated", metadata={"group": n // 2})
        for n, of in enumerate(rewards)
    ]  # fmt: skip
    values, stats = turn_values(episodes, read_estimator(estimator, {}, gamma=GAMMA))
    packed = pack_turns(episodes, values, stats, mask_cut=False, info={"actor/started_tasks": 7.0})
    return draw_turns(packed, wanted, Random(0))


def advantages(made: Any, rows: list[Any]) -> list[float]:
    rewards = torch.tensor([row.rewards for row in rows])
    found: torch.Tensor = made.compute_monte_carlo_advantages(rewards, torch.ones_like(rewards))
    assert found.shape == (len(rows),)
    return found.tolist()


def returns_of(rewards: list[list[float]]) -> list[Fraction]:
    return [g for of in rewards for g in turn_returns(of, GAMMA)]


def values_of(rows: list[Any]) -> list[Fraction]:
    return [Fraction(row.rewards[-1]) for row in rows]


def test_dropped_turns_of_all_rounds_are_in_the_statistics() -> None:
    rounds = [[[0.0, 1.0], [-0.5, 0.25, 0.0]], [[3.0], [0.5, 0.5]]]
    made, rows = learner(), []
    for rewards in rounds:
        part = collected(rewards, wanted=2)
        made.process_feedback_data(part)
        rows += part
    everything = [g for rewards in rounds for g in returns_of(rewards)]
    mine = values_of(rows)
    wanted = standardized(mine, everything, 0, 1e-8, 1e-6)
    assert advantages(made, rows) == pytest.approx([float(a) for a in wanted], abs=1e-6)
    assert made._stats.count == len(everything) > len(rows)
    assert len(made.pi_buffer) == made.query_step == 4


def test_the_papers_settings_use_the_remaining_rows() -> None:
    made = learner(scope="trained", eps=1e-9)
    rows = collected([[0.0, 1.0], [-0.5, 0.25, 0.0], [3.0]], wanted=3)
    made.process_feedback_data(rows)
    mine = values_of(rows)
    wanted = standardized(mine, mine, 0, 1e-9, 1e-6)
    assert advantages(made, rows) == pytest.approx([float(a) for a in wanted], abs=1e-6)


def test_learners_that_share_an_actor_count_its_turns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "get_rank", lambda group=None: 1)
    made = learner()
    made.process_feedback_data(collected([[0.0, 1.0]], wanted=2))
    assert made._collected == []
    assert made.query_step == 2


def test_equal_returns_give_zero() -> None:
    made = learner()
    rows = collected([[-0.1]] * 6, wanted=4)
    made.process_feedback_data(rows)
    assert advantages(made, rows) == [0.0] * 4


def test_what_the_actor_computed_stays() -> None:
    made = learner("grpo")
    rows = collected([[1.0], [0.0, 0.0], [2.0], [0.5]], wanted=5, estimator="grpo")
    made.process_feedback_data(rows)
    assert advantages(made, rows) == [pytest.approx(row.rewards[-1], abs=1e-6) for row in rows]
    assert {round(row.rewards[-1], 6) for row in rows} == {1.0, -1.0}


@pytest.mark.parametrize("estimator", ["rebn", "reinforce", "grpo", "rloo"])
def test_oats_metrics_of_rewards_show_rewards(estimator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the rows' values are: returns of -0.9, -1, ..., or advantages."""
    made, rewards = learner(estimator), [[0.0, -1.0], [1.0, 1.0], [0.0, -2.0], [1.0, 0.0]]
    rows = collected(rewards, wanted=8, estimator=estimator)
    made.process_feedback_data(rows)
    assert made.actor_info == {"actor/avg_reward": 0.0}
    assert sum(max(row.rewards) for row in rows) != 0
    made.learn_result = {"train/all_zero_rewards_count": 99.0, "train/all_one_rewards_count": 99.0}
    advantages(made, rows)
    monkeypatch.setattr(PPOLearner, "learn", lambda self, learning_round: self.learn_result)
    info = made.learn(1)
    assert (info["train/all_zero_rewards_count"], info["train/all_one_rewards_count"]) == (3, 3)


def test_a_critic_counts_turns_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oat counts the episodes of a step if there is a critic, and the turns otherwise."""
    rows = collected([[0.0, 1.0], [3.0, 0.5, -1.0]], wanted=5)
    consumed = []
    for kind, data in ((Learner, rows[:4]), (CriticLearner, [rows[:2], rows[2:]])):
        made = learner()
        made.__class__ = kind
        monkeypatch.setattr(PPOMultiTurnLearner, "process_feedback_data", lambda self, data: None)
        made.prompt_consumed += len(data)  # in `LearnerBase.run`
        made.process_feedback_data(data)
        consumed.append(made.prompt_consumed)
    assert consumed == [4, 4]


def test_an_update_with_other_advantages_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """An Oat that no longer asks for advantages would train with its own without a word."""
    made = learner()
    made.process_feedback_data(collected([[0.0, 1.0]], wanted=2))
    monkeypatch.setattr(PPOLearner, "learn", lambda self, learning_round: {})
    with pytest.raises(UnsupportedTrainer, match="Oat has updated the model with its own advantages"):
        made.learn(1)


def test_a_critics_advantages_are_gae_over_turns() -> None:
    rewards, values, gamma, lam = [0.5, -1.0, 2.0], [0.25, 0.75, -0.5], 0.9, 0.8
    made: Any = CriticLearner.__new__(CriticLearner)
    made._choice = read_estimator("gae", {"lam": lam}, gamma=gamma, supplies=("values",))
    made._computed = False
    advantages, targets = made.compute_advantages(
        np.array(rewards), np.array([*values, 1e9]), np.array([0.0, 0.0, 1.0]), gamma, lam
    )
    upstream, returns = PPOMultiTurnLearner.compute_advantages(
        SimpleNamespace(critic=object()),
        rewards,
        np.array([*values, 1e9]),
        np.array([0.0, 0.0, 1.0]),
        gamma,
        lam,
    )
    ahead, wanted = 0.0, []
    for reward, value, following in zip(rewards[::-1], values[::-1], [0.0, *values[:0:-1]], strict=True):
        ahead = reward + gamma * following - value + gamma * lam * ahead
        wanted.insert(0, ahead)
    assert advantages.tolist() == pytest.approx(wanted, abs=1e-6)
    assert advantages.tolist() == pytest.approx(upstream.tolist(), abs=1e-6)
    assert targets.tolist() == pytest.approx(returns.tolist(), abs=1e-6)
    assert made._computed


def test_a_critics_advantages_of_an_estimator_of_a_user() -> None:
    """It may return lists, and compute in place."""

    def errors(turn_rewards: Any, *, values: Any, gamma: float = 1.0) -> Any:
        for rewards, of_critic in zip(turn_rewards, values, strict=True):
            rewards -= of_critic
            of_critic *= 0
        return [rewards.tolist() for rewards in turn_rewards]

    made: Any = CriticLearner.__new__(CriticLearner)
    made._choice = EstimatorChoice("errors", Estimator(errors, critic_learns="return"), gamma=0.5)
    rewards, values = np.array([0.5, 2.0]), np.array([0.25, 1.0, 9.0])
    advantages, targets = made.compute_advantages(rewards, values, None, 0.5, 1.0)
    assert (advantages.tolist(), targets.tolist()) == ([0.25, 1.0], [1.5, 2.0])
    assert (rewards.tolist(), values.tolist()) == ([0.5, 2.0], [0.25, 1.0, 9.0])
    made._choice = EstimatorChoice("advantage", Estimator(errors, critic_learns="advantage"), gamma=0.5)
    assert made.compute_advantages(rewards, values, None, 0.5, 1.0)[1].tolist() == [0.5, 2.0]


def test_metrics_cover_all_episodes() -> None:
    made = learner()
    rows = collected([[0.0, 1.0], [3.0]], wanted=1)
    made.process_feedback_data(rows)
    advantages(made, rows)
    metrics = made._gem_metrics()
    assert metrics["gem/return"] == 2.0
    assert metrics["gem/turns"] == 1.5
    assert metrics["rebn/turns"] == 3.0
    assert RLLearner.process_feedback_data is not Learner.process_feedback_data


def test_an_environment_of_the_mix_that_always_fails_ends_the_run() -> None:
    played = [
        Episode("good", n, [Turn([1], [2], [0.0], 1.0, "", "", "stop")], True, False, "terminated")
        for n in range(8)
    ]
    cause = "step() failed: ValueError: no board"
    failed = [Episode("bad", n, [], False, False, "env_error", cause, trainable=False) for n in range(8)]
    made, choice = learner(), read_estimator("rebn", {})
    values, stats = turn_values(played, choice)
    for episodes in (played, [*played, *failed]):
        made._collected = []
        packed = pack_turns(episodes, values, stats, mask_cut=False, info={"actor/started_tasks": 1.0})
        made.process_feedback_data(draw_turns(packed, 4, Random(0)))
        if episodes is played:
            assert made._gem_metrics()["gem/played/good"] == 8
    with pytest.raises(EnvError, match=rf"step 1: all 8 episodes of bad .*seed 0: {re.escape(cause)}"):
        made._gem_metrics()
    others = [replace(episode, env_id="other") for episode in played]
    made._collected[0].episodes = [*played, *others]
    assert made._gem_metrics()["gem/played/other"] == 8


class Endless(Env):
    """Never ends by itself."""

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        return "Go.", {}

    def step(self, action: str) -> Any:
        return "Go on.", 0.0, False, False, {}


def test_an_environment_that_never_ends_is_cut_by_the_context_length() -> None:
    class Ones:
        async def generate(self, prompt_ids: Any, *, max_tokens: int, request_id: str) -> Generation:
            return Generation([ord("1")], [0.0], "stop")

    context = AppendContext(CharTokenizer())
    episode = asyncio.run(run_episode(Endless(), Ones(), context, max_total_tokens=200))
    assert episode.stop_reason == "token_budget"
    assert episode.trainable
