"""gem_core's estimators behind `compute_advantages` of the imported RL2."""

from __future__ import annotations

import random
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
import wandb
from gem_rl2 import _upstream as upstream_module
from gem_rl2._activation import hook_advantages
from gem_rl2._estimators import AdvantageHook, spread_over_updates, turn_ids_of
from gem_rl2._router import fill, rows_in_order
from RL2.datasets import get_tensor_dict, pack_tensor_dicts
from RL2.utils.functions import aggregate_values

from gem_core.errors import ConfigError, EnvError, NonFiniteReward, UnsupportedTrainer
from gem_core.rollout import Episode, Thread, Turn
from tests.advantages.oracle import turn_returns
from tests.trainers import evidence
from tests.trainers.rl2.configs import gem_config

GAMMA = 0.9
Rows = list[list[tuple[int, int, float]]]
"""A trajectory: rows of turns, each a tuple (tokens before it, its tokens, its reward)."""


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: Any) -> Iterator[None]:
    """Set up a process group of one, and disable wandb, as RL2 requires."""
    monkeypatch.setattr(wandb, "log", lambda *args, **kwargs: None)
    store = tmp_path_factory.mktemp("store") / "file"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def trajectories(seed: int, count: int = 6, rows: int = 1) -> list[Rows]:
    draw = random.Random(seed)

    def turn() -> tuple[int, int, float]:
        return draw.randint(1, 4), draw.randint(1, 5), draw.choice([0.0, 1.0, draw.random()])

    return [
        [[turn() for _ in range(draw.randint(1, 4))] for _ in range(draw.randint(1, rows))]
        for _ in range(count)
    ]


def batch(made: list[Rows]) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Return a batch made by RL2's own functions, as in its rollout."""
    packed, counts = [], [0]
    for trajectory in made:
        for row in trajectory:
            tokens: list[int] = []
            mask: list[int] = []
            rewards: list[float] = []
            for before, length, reward in row:
                tokens += range(1, before + length + 1)
                mask += [0] * before + [1] * length
                rewards += [0.0] * (before + length - 1) + [reward]
            row_dict = get_tensor_dict(tokens, tokens, mask)
            row_dict["llm_logps"] = torch.zeros(len(tokens) - 1)
            row_dict["rewards"] = torch.tensor(rewards[1:])
            packed.append(row_dict)
        counts.append(counts[-1] + len(trajectory))
    return pack_tensor_dicts(packed), torch.tensor(counts)


def run(made: list[Rows], *overrides: str, **options: Any) -> dict[str, torch.Tensor]:
    config, upstream = gem_config(*overrides)
    tensors, bounds = batch(made)
    hook = AdvantageHook(upstream, **options)
    hook(config.adv if upstream.is_index else config, tensors, bounds, 1)
    return tensors


def per_turn(tensors: dict[str, torch.Tensor], made: list[Rows]) -> list[list[float]]:
    """Return the advantage of each turn, after checking that exactly its tokens have it."""
    found, row_number = [], 0
    for trajectory in made:
        turns = []
        for row in trajectory:
            at = -1  # RL2 shifts actions by one
            values = tensors["advantages"][row_number]
            wanted = torch.zeros_like(values)
            for before, length, _ in row:
                at += before
                turns.append(float(values[at]))
                wanted[at : at + length] = turns[-1]
                at += length
            assert torch.equal(values, wanted)
            row_number += 1
        found.append(turns)
    return found


def rewards_of(made: list[Rows]) -> list[list[float]]:
    return [[reward for row in trajectory for *_, reward in row] for trajectory in made]


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("seed", range(5))
def test_rebn_is_what_the_oracle_says(seed: int, rows: int) -> None:
    made = trajectories(seed, rows=rows)
    found = per_turn(run(made), made)
    wanted = evidence.oracle(rewards_of(made), GAMMA)
    scale = max(abs(value) for turns in wanted for value in turns)
    for some, others in zip(found, wanted, strict=True):
        assert some == pytest.approx(others, abs=1e-6 * max(1.0, scale))


def test_equal_returns_give_nothing() -> None:
    made = [[[(2, 3, 1.0)]]] * 4
    assert not run(made)["advantages"].any()


def test_the_options_of_an_estimator_reach_it() -> None:
    made = trajectories(7)
    gs = [g for rewards in rewards_of(made) for g in turn_returns(rewards, GAMMA)]
    mean = sum(gs) / len(gs)
    sample_std = (sum((g - mean) ** 2 for g in gs) / (len(gs) - 1)) ** 0.5
    found = per_turn(run(made, "+adv.rebn.ddof=1"), made)
    assert [a for turns in found for a in turns] == pytest.approx(
        [(g - mean) / sample_std for g in gs], abs=1e-5
    )


def test_reinforce_grpo_and_rloo() -> None:
    made = trajectories(3)
    gs = [turn_returns(rewards, GAMMA) for rewards in rewards_of(made)]
    for turns, wanted in zip(per_turn(run(made, "adv.estimator=gem_reinforce"), made), gs, strict=True):
        assert turns == pytest.approx(wanted, abs=1e-5)
    firsts = [values[0] for values in gs]
    for name, compare in (("gem_rloo", lambda a, b: a - b), ("gem_grpo", lambda a, b: (a > b) - (a < b))):
        found = per_turn(run(made, f"adv.estimator={name}", "adv.responses_per_prompt=2"), made)
        for index, turns in enumerate(found):
            wanted = compare(firsts[index], firsts[index ^ 1])
            assert turns == pytest.approx([wanted] * len(turns), abs=1e-5)


def test_rl2s_own_estimator_is_left_alone() -> None:
    made = trajectories(4)
    mine = run(made, "adv.estimator=reinforce")
    config, upstream = gem_config("adv.estimator=reinforce")
    theirs, bounds = batch(made)
    upstream.compute_advantages(config.adv if upstream.is_index else config, theirs, bounds, 1)
    assert torch.equal(mine["advantages"], theirs["advantages"])
    assert set(mine) == set(theirs)


def test_a_reward_that_is_not_finite_is_an_error_or_marks_a_failed_environment() -> None:
    made = trajectories(5)
    before, length, _ = made[2][0][-1]
    made[2][0][-1] = (before, length, float("nan"))
    with pytest.raises(NonFiniteReward):
        run(made)
    tensors = run(made, failures_are_nan=True)
    rest = [trajectory for index, trajectory in enumerate(made) if index != 2]
    wanted = evidence.oracle(rewards_of(rest), GAMMA)
    assert not tensors["advantages"][2].any()
    assert not tensors["action_mask"][2].any()
    tensors["advantages"] = tensors["advantages"][[0, 1, 3, 4, 5]]
    for some, others in zip(per_turn(tensors, rest), wanted, strict=True):
        assert some == pytest.approx(others, abs=1e-5)


FAILED: Rows = [[(2, 3, float("nan"))]]


@pytest.mark.parametrize("words", [[], ["adv.norm_var=true"], ["adv.global_norm=true", "adv.norm_var=true"]])
def test_failed_episodes_are_excluded_from_rl2s_baselines(words: list[str]) -> None:
    """Three responses of which one failed give the same result as RL2 gives for two responses."""
    made = trajectories(8, count=6)
    three = [
        t for n in range(3) for t in [*made[2 * n : 2 * n + n % 3], FAILED, *made[2 * n + n % 3 : 2 * n + 2]]
    ]
    wanted, found = (
        run(rows, "adv.estimator=reinforce", f"adv.responses_per_prompt={n}", *words, failures_are_nan=True)
        for n, rows in ((2, made), (3, three))
    )
    kept = found["action_mask"].any(1)
    assert kept.sum() == 6
    theirs = wanted["advantages"]
    torch.testing.assert_close(found["advantages"][kept][:, : theirs.shape[1]], theirs, atol=1e-5, rtol=1e-5)
    assert not found["advantages"][~kept].any()
    assert theirs.any()


def test_a_response_whose_group_failed_has_no_advantage() -> None:
    words = ("adv.estimator=reinforce", "adv.responses_per_prompt=2", "adv.norm_var=true")
    tensors = run([[[(2, 3, 1.0)]], FAILED], *words, failures_are_nan=True)
    assert not tensors["advantages"].any()


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_failed_episodes_are_not_in_the_mean_of_the_loss(level: str) -> None:
    """Compute the numbers that RL2's update takes from a batch."""
    good = trajectories(9, count=4)

    def loss(made: list[Rows]) -> float:
        tensors = run(made, failures_are_nan=True)
        actions, sequences = int(tensors["action_mask"].sum()), int(tensors["eos_mask"].sum())
        values = tensors["advantages"] ** 2  # one value per action
        return float(aggregate_values(values, tensors["action_mask"], level, actions, sequences))

    assert loss([good[0], FAILED, *good[1:], FAILED]) == pytest.approx(loss(good), rel=1e-6) != 0


def test_every_update_has_an_episode_that_did_not_fail() -> None:
    good = trajectories(10, count=3)
    tensors = run([*good, *[FAILED] * 4], failures_are_nan=True, updates=3)  # parts of 3, 3, and 1
    on = tensors["action_mask"].any(1)
    assert [bool(part.any()) for part in on.split(3)] == [True] * 3
    wanted = sorted([*map(sum, rewards_of(good)), *[0.0] * 4])
    assert sorted(tensors["rewards"].sum(1).tolist()) == pytest.approx(wanted)
    before = {name: values.clone() for name, values in tensors.items()}
    spread_over_updates(tensors, 3)
    assert all(torch.equal(tensors[name], before[name]) for name in tensors)


def test_more_updates_than_episodes_that_did_not_fail_is_an_error() -> None:
    episodes = [
        Episode("test:Fails", 7, [], False, True, "env_error", "reset() failed", trainable=False),
        Episode("test:Fails", 8, [], True, False, "terminated"),
    ]
    options: dict[str, Any] = {"failures_are_nan": True, "updates": 2}
    message = (
        r"step 1, one of 2 updates: no episode is trainable: .* test:Fails with seed 7: reset\(\) failed"
    )
    with pytest.raises(EnvError, match=message):
        run([FAILED, [[(2, 3, 1.0)]]], **options, episodes=lambda: episodes)
    with pytest.raises(EnvError, match="no episodes to train on"):
        run([FAILED, [[(2, 3, 1.0)]]], **options)
    run([FAILED, FAILED, [[(2, 3, 1.0)]], [[(2, 3, 0.0)]]], **options)  # each update has one


def test_turns_are_counted_along_a_trajectory() -> None:
    mask = torch.tensor([[0, 1, 1, 0, 1], [1, 1, 0, 0, 0], [0, 0, 1, 0, 1]])
    ids = turn_ids_of(mask, torch.tensor([0, 2, 3]))
    assert ids.tolist() == [[-1, 0, 0, -1, 1], [2, 2, -1, -1, -1], [-1, -1, 0, -1, 1]]


def test_the_hook_is_where_the_trainer_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    config, upstream = gem_config()
    trainer: Any = types.ModuleType("RL2.trainer.ppo")
    monkeypatch.setitem(sys.modules, "RL2.trainer.ppo", trainer)
    with pytest.raises(UnsupportedTrainer, match=r"RL2\.trainer\.ppo does not import compute_advantages"):
        hook_advantages(config, upstream, None)
    trainer.compute_advantages = upstream.compute_advantages
    hook_advantages(config, upstream, None)
    assert isinstance(trainer.compute_advantages, AdvantageHook)


def test_another_signature_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    import RL2.utils.algorithms as algorithms

    monkeypatch.setattr(algorithms, "compute_advantages", lambda config, batch: None)
    with pytest.raises(UnsupportedTrainer, match=r"takes \(config, batch\): expected .*rl-square>=0.0.2"):
        upstream_module.find()
    monkeypatch.undo()
    name = "compute_reinforce_adv" if upstream_module.find().is_index else "_compute_reinforce_adv"
    monkeypatch.delattr(algorithms, name)
    with pytest.raises(UnsupportedTrainer, match="is missing"):
        upstream_module.find()


def test_an_episode_with_side_threads_is_refused() -> None:
    turns = [Turn([1], [2], None, 1.0, "", "", "stop", thread=thread, parent=None) for thread in (0, 1)]
    threads = {1: Thread(called_by=0, returns_to=0)}
    episode = Episode("test:Env", 0, turns, True, False, "terminated", threads=threads)
    with pytest.raises(ConfigError, match=r"test:Env has side threads, but RL2's samples have no place"):
        fill(None, episode, types.SimpleNamespace(eos_token_id=0))


@pytest.mark.parametrize(
    ("contexts", "parents", "rows"),
    [
        ([[1], [2], [3]], [-1, -1, -1], [(0, 1, 2)]),
        ([[1], [2], [3]], [-1, None, -1], [(0,), (1, 2)]),
        ([[1], [2], [3]], [-1, None, -2], [(0,), (1,), (2,)]),  # turn 2 goes on after turn 0
        ([[1], [], [3]], [-1, -1, -1], [(0,), (1,), (2,)]),  # turn 1 directly follows turn 0
    ],
)
def test_the_turns_of_a_sample_are_counted_from_row_to_row(
    contexts: list[list[int]], parents: list[Any], rows: list[tuple[int, ...]]
) -> None:
    turns = [
        Turn(context, [5, 6], None, 1.0, "", "", "stop", parent=parent)
        for context, parent in zip(contexts, parents, strict=True)
    ]
    episode = Episode("test:Env", 0, turns, True, False, "terminated")
    found = rows_in_order(episode, pad_id=0)
    assert [row.turns for row in found] == rows
    width = max(map(len, found))
    mask = torch.tensor([row.response_mask + [0] * (width - len(row)) for row in found])
    ids = turn_ids_of(mask, [0, len(found)])
    assert ids[ids >= 0].tolist() == [0, 0, 1, 1, 2, 2]
