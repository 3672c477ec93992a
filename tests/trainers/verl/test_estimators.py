"""rebn and the other estimators, called like in verl's trainer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gem_verl import _SUPPORTED, _estimators
from gem_verl._options import estimator_names, read_algorithm
from verl import DataProto
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, get_adv_estimator_fn
from verl.trainer.ppo.ray_trainer import compute_advantage

from gem_core.advantages import estimator
from gem_core.errors import ConfigError, NonFiniteReward
from gem_core.rollout._estimator_inputs import EpisodeTurns
from gem_core.trainers import BatchFacts
from gem_core.trainers._imports import replaced
from tests.advantages.oracle import standardized, turn_returns
from tests.trainers.verl.configs import verl_config

MASK = torch.tensor([[1, 1, 0, 1, 1, 0, 0], [1, 0, 0, 1, 0, 1, 1], [0, 0, 0, 0, 0, 0, 0]])
REWARDS = torch.zeros(3, 7)
REWARDS[0, 1], REWARDS[0, 4], REWARDS[1, 0], REWARDS[1, 6] = 0.5, 1.0, 0.1, 2.0
TURNS = [[0.5, 1.0], [0.1, 0.0, 2.0]]
UIDS = np.array(["a", "a", "pad"], dtype=object)


def oracle(turns: list[list[float]], gamma: float, ddof: int = 0) -> list[float]:
    returns = [g for episode in turns for g in turn_returns(episode, gamma)]
    return standardized(returns, returns, ddof, 1e-8, 1e-6)


def config(*overrides: str, name: str = "rebn", gamma: float = 0.5) -> Any:
    return verl_config(f"algorithm.adv_estimator={name}", f"algorithm.gamma={gamma}", *overrides).algorithm


def trained(name: str, rewards: torch.Tensor, mask: torch.Tensor, algorithm: Any) -> torch.Tensor:
    """Compute advantages through verl's own dispatch."""
    data = DataProto.from_dict(
        tensors={"token_level_rewards": rewards, "response_mask": mask}, non_tensors={"uid": UIDS}
    )
    return compute_advantage(data, adv_estimator=name, gamma=algorithm.gamma, config=algorithm).batch[
        "advantages"
    ]


def spread(values: list[float]) -> torch.Tensor:
    wanted = torch.zeros(3, 7)
    for (row, tokens), value in zip(
        [(0, [0, 1]), (0, [3, 4]), (1, [0]), (1, [3]), (1, [5, 6])], values, strict=True
    ):
        wanted[row, tokens] = value
    return wanted


def test_rebn_equals_the_oracle_and_pads_are_zero() -> None:
    for overrides, ddof in (((), 0), (("+algorithm.rebn.ddof=1",), 1)):
        result = trained("rebn", REWARDS, MASK, config(*overrides))
        torch.testing.assert_close(result, spread(oracle(TURNS, 0.5, ddof)), atol=1e-5, rtol=0)


def test_a_penalty_on_the_tokens_counts() -> None:
    penalty = 0.01 * MASK
    with_penalty = [[0.5 - 0.02, 1.0 - 0.02], [0.1 - 0.01, -0.01, 2.0 - 0.02]]
    result = trained("rebn", REWARDS - penalty, MASK, config())
    torch.testing.assert_close(result, spread(oracle(with_penalty, 0.5)), atol=1e-5, rtol=0)


FROM_EPISODES = {"rae": "agent_ids", "gem_gdpo": "reward_components", "gem_gigpo": "state_keys"}
"""Estimators that need something about the episodes, which only GEM's trainer modes know."""
OF_ROWS = [
    name
    for name in estimator_names()
    if name.removeprefix("gem_") not in ("rae", "gdpo", "gigpo", "remax", "gae", "mine")
]


def test_an_estimator_whose_needs_are_not_supplied_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"gem_remax needs baselines .*verl does not supply"):
        trained("gem_remax", REWARDS, MASK, config(name="gem_remax"))


@pytest.mark.parametrize(("name", "need"), list(FROM_EPISODES.items()))
def test_verls_own_modes_know_no_episodes(name: str, need: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name} needs {need} .*verl does not supply"):
        read_algorithm(config(name=name), name, own_mode=False)
    with pytest.raises(ConfigError, match=rf"{name} needs {need}, .* but the rows have none"):
        trained(name, REWARDS, MASK, config(name=name))


EPISODES = [
    EpisodeTurns([0.5, 1.0], [2, 2], "a", ("a", "x"), False, ["s", "t"], [{"p": 0.5}, {"p": 1.0}]),
    EpisodeTurns(
        [0.1, 0.0, 2.0], [1, 1, 2], "b", ("a", "x"), True, ["s", "t", "u"], [{"p": 0.1}, {}, {"p": 2.0}]
    ),
    None,
]
"""The episodes of the rows above; the last row is padding."""


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("rebn", ["statistics=env"]),
        ("rebn", ["truncation=mask"]),
        ("rae", []),
        ("gem_gdpo", []),
        ("gem_gigpo", []),
    ],
)
def test_estimators_that_need_the_episodes_get_them(name: str, options: list[str]) -> None:
    algorithm = config(*(f"+algorithm.{name}.{option}" for option in options), name=name, gamma=1.0)
    with replaced(_estimators, "batch_facts", BatchFacts(played=EPISODES)):
        found = trained(name, REWARDS, MASK, algorithm)
    choice = read_algorithm(algorithm, name)
    wanted, _ = choice.compute_turns([one for one in EPISODES if one], ["a", "a"])
    flat = [value for episode_values in wanted for value in episode_values]
    assert any(flat)
    torch.testing.assert_close(found, spread(flat), atol=1e-5, rtol=0)


@estimator()
def mine(turn_rewards: Any, *, env_ids: Any, gamma: float = 1.0, factor: float = 1.0) -> list[Any]:
    """Return the rewards times a factor, with the sign of the environment."""
    return [
        factor * np.asarray(rewards) * (1 if env == "a" else -1)
        for rewards, env in zip(turn_rewards, env_ids, strict=True)
    ]


def test_a_registered_estimator_works_by_its_name() -> None:
    _estimators.register()
    for name in ("mine", "gem_mine"):
        algorithm = config(f"+algorithm.{name}.factor=2", name=name)
        with replaced(_estimators, "batch_facts", BatchFacts(played=EPISODES)):
            found = trained(name, REWARDS, MASK, algorithm)
        torch.testing.assert_close(found, spread([1.0, 2.0, -0.2, 0.0, -4.0]), atol=1e-6, rtol=0)


def test_verls_own_estimators_are_the_declared_ones() -> None:
    ours = estimator_names()
    assert {name for name in ADV_ESTIMATOR_REGISTRY if name not in ours} == set(_SUPPORTED.own_estimators)


def test_gae_over_turns_needs_the_values_of_a_critic() -> None:
    with pytest.raises(ConfigError, match="gem_gae needs values, a critic's value of each turn"):
        trained("gem_gae", REWARDS, MASK, config(name="gem_gae"))


@pytest.mark.parametrize("name", OF_ROWS)
def test_rows_that_share_an_episode_give_what_one_row_gives(name: str) -> None:
    whole = trained(name, REWARDS, MASK, config(name=name))
    # The same five turns as rows, in a different order, with a pad in between.
    pieces = [(1, 1, 3, 4), (0, 0, 0, 2), (None, 0, 0, 0), (1, 2, 5, 7), (0, 1, 3, 5), (1, 0, 0, 1)]
    rewards, mask = torch.zeros(6, 2), torch.zeros(6, 2)
    for row, (episode, _, start, end) in enumerate(pieces):
        if episode is not None:
            rewards[row, : end - start] = REWARDS[episode, start:end]
            mask[row, : end - start] = 1
    facts = BatchFacts(
        episodes=[2 if e is None else e for e, *_ in pieces], turns=[[turn] for _, turn, *_ in pieces]
    )
    uids = np.array(["pad" if e is None else "a" for e, *_ in pieces], dtype=object)
    with replaced(_estimators, "batch_facts", facts):
        advantages, _ = get_adv_estimator_fn(name)(
            token_level_rewards=rewards, response_mask=mask, config=config(name=name), index=uids
        )
    for row, (episode, _, start, end) in enumerate(pieces):
        wanted = torch.zeros(2)
        if episode is not None:
            wanted[: end - start] = whole[episode, start:end]
        torch.testing.assert_close(advantages[row], wanted, atol=1e-6, rtol=0)
    assert facts.stats.count == 5


def test_turn_ids_keep_touching_turns_apart() -> None:
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 1, 1]])
    rewards = torch.tensor([[1.0, 0, 3.0, 0], [0, 0, 0, 2.0]])
    turn_ids = torch.tensor([[0, 1, 1, -1], [0, -1, 1, 1]])
    with replaced(_estimators, "batch_facts", BatchFacts(turn_ids=turn_ids)):
        advantages, _ = get_adv_estimator_fn("rebn")(
            token_level_rewards=rewards, response_mask=mask, config=config(gamma=0.0)
        )
    wanted = oracle([[1.0, 3.0], [0.0, 2.0]], 0.0)
    assert advantages[0].tolist() == pytest.approx([wanted[0], wanted[1], wanted[1], 0.0], abs=1e-6)


def test_groups_are_verls_uids() -> None:
    result = trained("gem_rloo", REWARDS, MASK, config(name="gem_rloo", gamma=1.0))
    assert result[0, 0] == pytest.approx(1.5 - 2.1, abs=1e-6)
    assert result[1, 0] == pytest.approx(2.1 - 1.5, abs=1e-6)
    rewards, mask = torch.tensor([[1.0], [10.0], [3.0], [20.0]]), torch.ones(4, 1)
    apart, _ = get_adv_estimator_fn("gem_rloo")(
        token_level_rewards=rewards, response_mask=mask, config=config(name="gem_rloo"),
        index=np.array([*"abab"], dtype=object),
    )  # fmt: skip
    assert apart[:, 0].tolist() == pytest.approx([-2.0, -10.0, 2.0, 10.0], abs=1e-6)
    with pytest.raises(ConfigError, match="needs group_ids, the group of each episode"):
        get_adv_estimator_fn("gem_grpo")(token_level_rewards=REWARDS, response_mask=MASK, config=config())


def test_failures_are_clear() -> None:
    bad = REWARDS.clone()
    bad[1, 3] = float("nan")
    with pytest.raises(NonFiniteReward, match="row 1, turn 1"):
        trained("rebn", bad, MASK, config())
    rejecting = config("algorithm.rollout_correction.rollout_rs=token_k1")
    with pytest.raises(ConfigError, match="would split turns"):
        trained("rebn", REWARDS, MASK, rejecting)
