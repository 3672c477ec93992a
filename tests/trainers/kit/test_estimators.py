"""Estimators by their names in trainers' configs."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from gem_core.advantages import ReturnStats, Threads, with_threads
from gem_core.advantages._declaration import NEEDS
from gem_core.advantages._registry import Estimator
from gem_core.errors import ConfigError, NonFiniteReward
from gem_core.rollout import Episode, Thread, Turn
from gem_core.rollout._estimator_inputs import EpisodeTurns
from gem_core.rollout._metrics import without_tokens
from gem_core.trainers import EstimatorChoice, SupportedTrainer, read_estimator
from gem_core.trainers._estimators import TurnLog, _on_first_tokens, _try_options, unknown_estimator
from gem_lab import load_trainer
from gem_lab._discovery import trainer_names

torch = pytest.importorskip("torch", reason="needs the extra 'train'")

MASK = torch.tensor([[1, 1, 0, 1], [1, 0, 1, 0]])
REWARDS = torch.tensor([[0.0, 1.0, 0.0, 2.0], [3.0, 0.0, 4.0, 0.0]])


def turn(reward: float, observation: str) -> Turn:
    return Turn([], [1, 2, 3], None, reward, observation, "", "stop")


def test_options_and_scope_are_read_once() -> None:
    choice = read_estimator("rebn", {"ddof": 1, "eps": None, "scope": "trained"}, gamma=0.5)
    assert (choice.options, choice.scope, choice.gamma) == ({"ddof": 1}, "trained", 0.5)
    assert read_estimator("rebn", {}).scope == "collected"
    assert read_estimator("gem_grpo", {}).scope == "trained"
    assert read_estimator("grpo", {}).needs_groups
    assert not read_estimator("gem_reinforce", {}).needs_groups


@pytest.mark.parametrize(
    ("name", "options", "gamma", "message"),
    [
        ("rebn", {"dof": 1}, 1.0, "unknown option 'adv.dof' of rebn"),
        ("rebn", {"scope": "all"}, 1.0, "adv.scope='all': expected collected or trained"),
        ("gem_grpo", {"scope": "trained"}, 1.0, "unknown option 'adv.scope' of grpo"),
        ("rebn", {}, 1.5, "adv.gamma=1.5: expected a number from 0 to 1"),
        ("rebn", {"ddof": "1"}, 1.0, r"adv={'ddof': '1'}: ddof='1': expected 0 or 1"),
        ("rebn", {"statistics": "grp"}, 0.5, "statistics='grp': expected batch, env, or group"),
        ("gigpo", {"normalization": "std", "eps": -1.0}, 1.0, "adv={.*normalization='std': expected"),
        ("reinforce_plus_plus", {"min_std": float("nan")}, 1.0, "min_std=nan: expected a finite number"),
        ("rebn", {}, float("nan"), "expected a finite number"),
        ("gdpo", {"ddof": 3}, 1.0, r"adv={'ddof': 3}: ddof=3: expected 0 or 1"),
        ("gdpo", {"component_weights": [1, 2, 3], "eps": -1}, 1.0, "eps=-1.0: expected a number of at"),
        ("gdpo", {"component_weights": [1, float("nan")]}, 1.0, "expected a sequence of finite numbers"),
        ("gdpo", {"component_weights": "1,2"}, 1.0, "component_weights is a str: expected numbers"),
        ("gdpo", {"component_weights": 2}, 1.0, "component_weights: expected a sequence of finite numbers"),
        ("gdpo", {"component_weights": []}, 1.0, r"component_weights=\[\]: expected 1 weights, not all 0"),
        ("gdpo", {"component_weights": [0, 0.0]}, 1.0, "expected 2 weights, not all 0"),
        ("gdpo", {"component_weights": [[1, 2]]}, 1.0, "component_weights: expected a sequence of finite"),
        ("gdpo", {"min_std": "0.1"}, 1.0, "min_std='0.1': expected a number of at least 0"),
    ],
)
def test_wrong_options(name: str, options: dict[str, Any], gamma: float, message: str) -> None:
    supplies = [*NEEDS, "truncated"]
    with pytest.raises(ConfigError, match=message):
        read_estimator(name, options, gamma=gamma, prefix="adv.", gamma_option="adv.gamma", supplies=supplies)


def test_options_are_tried_only_where_the_estimator_takes_the_batch() -> None:
    def scaled(rewards: Any, *, baselines: Any, values: Any, gamma: float = 1.0, scale: float = 1.0) -> Any:
        assert len(baselines) == len(values) == len(rewards)
        return [scale * np.array(of_episode) for of_episode in rewards]

    def pairs(rewards: Any, *, gamma: float = 1.0, scale: float = 1.0) -> Any:
        assert len(rewards) == 2
        return scaled(rewards, baselines=[0, 0], values=[0, 0], scale=scale)

    mine = Estimator(scaled, critic_learns="return")
    for scale, why in (("2", "UFuncTypeError: "), (float("inf"), "scaled: an advantage of episode 0 is not")):
        with pytest.raises(ConfigError, match=f"adv={{'scale': {scale!r}}}: {why}"):
            _try_options(EstimatorChoice("scaled", mine, options={"scale": scale}), "adv")
    _try_options(EstimatorChoice("scaled", mine, options={"scale": 2}), "adv")
    _try_options(EstimatorChoice("pairs", Estimator(pairs), options={"scale": "2"}), "adv")

    def chosen(rewards: Any, *, reward_components: Any, gamma: float = 1.0, names: Any = (0,)) -> Any:
        return [np.asarray(parts)[:, list(names)].sum(1) for parts in reward_components]

    own = Estimator(chosen)
    _try_options(EstimatorChoice("chosen", own, options={"names": [3, 1]}), "adv")
    with pytest.raises(ConfigError, match="IndexError"):
        _try_options(EstimatorChoice("chosen", own, options={"names": ["correct"]}), "adv")
    for name, options in (
        ("gae", {"lam": 0.5}), ("gdpo", {"component_weights": [1.0, 0.5]}), ("rae", {"truncation": "mask"}),
        ("mt_grpo", {"ddof": 1}), ("rebn", {"statistics": "env", "weight": "episode"}),
    ):  # fmt: skip
        read_estimator(name, options, supplies=[*NEEDS, "truncated"])


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (
            None,
            "the advantages of odd is a NoneType: expected a list with one sequence of numbers per episode",
        ),
        (1.0, "the advantages of odd is a float: expected a list"),
        ({0: [0.0, 0.0], 1: [0.0]}, r"the advantages of odd: episode 0 has shape \(\)"),
        ([[0.0, 0.0]], r"odd returned advantages for \[2\] turns: expected one per turn, \[2, 1\]"),
        ([[0.0], [0.0]], r"odd returned advantages for \[1, 1\] turns"),
        ([[0.0, float("nan")], [0.0]], r"an advantage of episode 0 is not finite"),
        ([torch.zeros(2), torch.zeros(1)], r"episode 0 is a torch.Tensor of shape \(2,\): expected a list"),
        (torch.zeros(2, 2), r"episode 0 is a torch.Tensor of shape \(2,\): expected a list"),
    ],
)
def test_what_an_estimator_must_return(result: Any, message: str) -> None:
    def odd(turn_rewards: Any, *, gamma: float = 1.0) -> Any:
        return result

    choice = EstimatorChoice("odd", Estimator(odd))
    with pytest.raises(ConfigError, match=message):
        choice.compute_turns([EpisodeTurns([0.0, 1.0], [1, 1]), EpisodeTurns([1.0], [1])], [0, 0])
    with pytest.raises(ConfigError, match=message):
        choice.compute(torch.tensor([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]), torch.tensor([[1, 0, 1], [1, 0, 0]]))


def test_an_estimator_gets_the_same_from_turns_and_from_tensors_and_may_change_it() -> None:
    """A user's function may compute in place, on arrays."""
    seen: list[Any] = []

    def own(turn_rewards: Any, *, lengths: Any, group_ids: Any, gamma: float = 1.0) -> Any:
        seen.append([[part.copy() for part in given] for given in (turn_rewards, lengths)])
        for rewards, tokens in zip(turn_rewards, lengths, strict=True):
            rewards -= rewards.mean()
            tokens[:] = 0
        return turn_rewards

    choice = EstimatorChoice("own", Estimator(own))
    episodes = [EpisodeTurns([1.0, 2.0], [2, 1]), EpisodeTurns([3.0, 4.0], [1, 1])]
    advantages, stats = choice.compute_turns(episodes, [0, 0])
    assert [one.tolist() for one in advantages] == [[-0.5, 0.5], [-0.5, 0.5]]
    assert ([one.rewards for one in episodes], episodes[0].lengths) == ([[1.0, 2.0], [3.0, 4.0]], [2, 1])
    assert stats == ReturnStats.from_returns([[3.0, 2.0], [7.0, 4.0]])
    result = choice.compute(REWARDS, MASK, group_ids=[0, 0])
    assert result.advantages[0].tolist() == [-0.5, -0.5, 0.0, 0.5]
    assert result.returns.tolist() == [[3.0, 3.0, 0.0, 2.0], [7.0, 0.0, 4.0, 0.0]]
    assert result.stats == stats
    for ours, theirs in zip(*seen, strict=True):
        assert [(a.dtype, a.tolist()) for a in ours] == [(b.dtype, b.tolist()) for b in theirs]


def test_an_unknown_estimator() -> None:
    with pytest.raises(ConfigError, match=r"unknown estimator 'rebnn'\. Did you mean rebn"):
        read_estimator("rebnn", {})
    error = unknown_estimator("adv.estimator", "rebnn", ["rebn", "gae"])
    assert str(error) == ("adv.estimator: unknown estimator 'rebnn'. Did you mean rebn? Available: rebn, gae")


def test_both_ends_of_the_discount_are_allowed() -> None:
    assert [read_estimator("rebn", {}, gamma=gamma).gamma for gamma in (0, 1)] == [0.0, 1.0]
    with pytest.raises(ConfigError, match=r"--gamma=-0.1: expected"):
        read_estimator("rebn", {}, gamma=-0.1, gamma_option="--gamma")


def test_what_the_trainer_must_not_do() -> None:
    grpo, rebn = read_estimator("gem_grpo", {}), read_estimator("rebn", {})
    grpo.check_group_size("rollout.n", 2)
    rebn.check_group_size("rollout.n", 1)
    with pytest.raises(ConfigError, match=r"gem_grpo compares .* rollout.n=1 every advantage would be 0"):
        grpo.check_group_size("rollout.n", 1)
    grpo.check_collected("a filter drops groups", "scope=trained")
    with pytest.raises(ConfigError, match=r"a filter drops groups before rebn sees them.*; scope=trained"):
        rebn.check_collected("a filter drops groups", "scope=trained")


def test_all_rows_of_an_episode_have_the_same_advantages() -> None:
    choice = read_estimator("rebn", {}, gamma=0.5)
    whole = choice.compute(REWARDS, MASK)
    pieces = [(1, 1, slice(2, 3)), (0, 0, slice(0, 2)), (1, 0, slice(0, 1)), (0, 1, slice(3, 4))]
    rewards, mask = torch.zeros(4, 2), torch.zeros(4, 2)
    for row, (episode, _, part) in enumerate(pieces):
        width = part.stop - part.start
        rewards[row, :width], mask[row, :width] = REWARDS[episode, part], 1
    split = choice.compute(
        rewards, mask, episodes=[episode for episode, *_ in pieces], turns=[[turn] for _, turn, _ in pieces]
    )
    assert split.stats == whole.stats
    for row, (episode, _, part) in enumerate(pieces):
        assert split.advantages[row, 0] == whole.advantages[episode, part.start]


def test_groups_reach_an_estimator_that_needs_them_only() -> None:
    rloo = read_estimator("gem_rloo", {})
    result = rloo.compute(REWARDS, MASK, group_ids=["a", "a"])
    assert result.advantages[:, 0].tolist() == [3.0 - 7.0, 7.0 - 3.0]
    with pytest.raises(ConfigError, match=r"gem_rloo needs group_ids, the group of each .* have none"):
        rloo.compute(REWARDS, MASK)
    plain = read_estimator("gem_reinforce", {}).compute(REWARDS, MASK, group_ids=["a", "a"])
    assert plain.advantages[0, 0] == 3.0


EPISODES = [
    Episode("game", 1, [turn(0.0, "a"), turn(2.0, "b")], True, False, "terminated"),
    Episode("game", 1, [turn(5.0, "a")], False, True, "env_error", trainable=False),
    Episode("game", 1, [turn(1.0, "a")], True, False, "terminated"),
    Episode("other", 2, [turn(3.0, "c"), turn(1.0, "d")], True, False, "terminated", env_kwargs={"size": 3}),
    Episode("other", 2, [], False, True, "env_error", trainable=False),
    Episode("other", 2, [turn(0.0, "c")], True, False, "terminated", env_kwargs={"size": 3}),
]
EVERYTHING: Any = (
    "group_ids", "lengths", "env_ids", "agent_ids", "state_keys", "reward_components", "truncated",
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("rebn", {"ddof": 1}), ("rebn", {"statistics": "env"}), ("reinforce", {}),
        ("reinforce_plus_plus", {}), ("grpo", {}), ("rloo", {}), ("opo", {}),
        ("maxrl", {}), ("mt_grpo", {}), ("gigpo", {}),
    ],
)  # fmt: skip
def test_turns_of_all_ranks_have_the_advantages_of_the_tensor_form(
    name: str, options: dict[str, Any]
) -> None:
    choice = read_estimator(name, options, gamma=0.5, supplies=EVERYTHING)
    turns = [EpisodeTurns.of(episode, choice.needs) for episode in EPISODES]
    assert [one.rewards for one in turns] == [[0.0, 2.0], [], [1.0], [3.0, 1.0], [], [0.0]]
    groups = [0, 0, 0, 1, 1, 1]
    advantages, stats = choice.compute_turns(turns, groups)
    rewards, mask = torch.zeros(6, 8), torch.zeros(6, 8)
    for row, one in enumerate(turns):
        for index, (reward, length) in enumerate(zip(one.rewards, one.lengths, strict=True)):
            mask[row, 4 * index : 4 * index + length] = 1
            rewards[row, 4 * index] = reward
    supplied: dict[str, Any] = {"env_ids": [one.env_id for one in turns], "group_ids": groups}
    supplied["state_keys"] = [one.state_keys for one in turns]
    supplied = {need: supplied[need] for need in choice.needs if need != "lengths"}
    wanted = choice.compute(rewards, mask, **supplied)
    assert stats.count == wanted.stats.count == 6
    for row, turn_advantages in enumerate(advantages):
        found = [float(wanted.advantages[row, 4 * index]) for index in range(len(turn_advantages))]
        assert list(turn_advantages) == pytest.approx(found, abs=1e-6)


def test_no_turns_at_all_and_a_reward_that_is_not_finite() -> None:
    choice = read_estimator("grpo", {})
    advantages, stats = choice.compute_turns([EpisodeTurns([], [])] * 2, [0, 0])
    assert ([len(one) for one in advantages], stats.count) == ([0, 0], 0)
    with pytest.raises(NonFiniteReward, match="episode 1, turn 0: reward nan"):
        choice.compute_turns([EpisodeTurns([1.0], [1]), EpisodeTurns([float("nan")], [1])], [0, 0])


def test_the_source_of_turns_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    log = TurnLog(logging.getLogger("tests.turns"))
    with caplog.at_level(logging.INFO):
        for source in ("turn ids", "turn ids", "the mask"):
            log("rebn", ReturnStats.from_returns([[1.0, 2.0]]), source)
    assert [record.getMessage() for record in caplog.records] == [
        "rebn: 2 turns in this batch, taken from turn ids",
        "rebn: 2 turns in this batch, taken from the mask",
    ]


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("rebn", {"ddof": 1}, "rebn(gamma=0.9, ddof=1), statistics of all turns collected for a step"),
        ("rebn", {"scope": "trained"}, "rebn(gamma=0.9), statistics of the turns that are trained on"),
        ("gem_grpo", {}, "gem_grpo(gamma=0.9), compares the episodes of a task"),
        ("gem_reinforce", {}, "gem_reinforce(gamma=0.9)"),
    ],
)
def test_a_plan_names_the_statistics(name: str, options: dict[str, object], expected: str) -> None:
    assert read_estimator(name, options, gamma=0.9).summary == expected


def test_the_default_of_the_scope_follows_the_options() -> None:
    for options, scope in (
        ({}, "collected"),
        ({"ddof": 1}, "collected"),
        ({"statistics": "env"}, "trained"),
        ({"statistics": "group"}, "trained"),
        ({"weight": "episode"}, "trained"),
        ({"truncation": "mask"}, "trained"),
        ({"truncation": "keep"}, "collected"),
        ({"weight": "episode", "scope": "trained"}, "trained"),
    ):
        assert read_estimator("rebn", options, supplies=EVERYTHING).scope == scope, options


@pytest.mark.parametrize("options", [{"statistics": "env"}, {"weight": "episode"}, {"truncation": "mask"}])
def test_statistics_of_collected_turns_count_every_turn_once(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"a\.scope='collected' cannot be combined with statistics, weight"):
        read_estimator("rebn", {**options, "scope": "collected"}, prefix="a.", supplies=EVERYTHING)


def test_truncation_is_an_option_where_the_trainer_knows_it() -> None:
    with pytest.raises(ConfigError, match=r"unknown option 'a\.truncation' of rebn"):
        read_estimator("rebn", {"truncation": "mask"}, prefix="a.")
    with pytest.raises(ConfigError, match=r"a\.truncation='drop': expected keep or mask"):
        read_estimator("rebn", {"truncation": "drop"}, prefix="a.", supplies=EVERYTHING)
    assert read_estimator("gem_grpo", {"truncation": "mask"}, supplies=EVERYTHING).truncation == "mask"


TRUNCATED = [
    EpisodeTurns([0.0, 2.0], [3, 1]),
    EpisodeTurns([7.0], [1], truncated=True),
    EpisodeTurns([1.0], [2]),
    None,
]
ROW_MASK = torch.tensor([[1, 1, 1, 0, 1], [1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 1, 1, 0, 0]])
ROW_REWARDS = torch.tensor([[0, 0, 0, 0, 2.0], [7, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 3, 0, 0, 0]])


@pytest.mark.parametrize("name", ["rebn", "grpo", "reinforce", "reinforce_plus_plus_baseline"])
def test_masked_episodes_have_no_part_in_any_form(name: str) -> None:
    choice = read_estimator(name, {"truncation": "mask"}, gamma=0.5, supplies=EVERYTHING)
    groups = ["a", "a", "a", "a"]
    result = choice.compute(ROW_REWARDS, ROW_MASK, group_ids=groups, played=TRUNCATED)
    rest = [0, 2, 3]
    wanted = choice.estimator.tensors(
        ROW_REWARDS[rest],
        ROW_MASK[rest],
        gamma=0.5,
        **({"group_ids": groups[:3]} if choice.needs_groups else {}),
    )
    torch.testing.assert_close(result.advantages[rest], wanted.advantages)
    assert wanted.advantages.any()
    assert not result.advantages[1].any()
    assert result.stats == wanted.stats
    turns = [one for one in TRUNCATED if one] + [EpisodeTurns([3.0], [2])]
    advantages, stats = choice.compute_turns(turns, groups)
    assert advantages[1].tolist() == [0.0]
    assert advantages[0].tolist() == pytest.approx(
        [float(result.advantages[0, 0]), float(result.advantages[0, 4])]
    )
    assert stats.to_wire() == pytest.approx(result.stats.to_wire())
    with pytest.raises(ConfigError, match="needs to know which rows were truncated"):
        choice.compute(ROW_REWARDS, ROW_MASK, group_ids=groups)


def test_rows_of_a_masked_episode() -> None:
    choice = read_estimator("grpo", {"truncation": "mask"}, supplies=EVERYTHING)
    episodes = ["a", "b", "b", "c"]
    row_episodes = [TRUNCATED[0], TRUNCATED[1], TRUNCATED[1], TRUNCATED[2]]
    result = choice.compute(
        torch.tensor([[2.0], [7.0], [1.0], [1.0]]), torch.ones(4, 1),
        episodes=episodes, turns=[[0], [0], [1], [0]], group_ids=["g"] * 4, played=row_episodes,
    )  # fmt: skip
    assert result.advantages[:, 0].tolist() == [1.0, 0.0, 0.0, -1.0]


def test_inputs_of_rows_are_those_of_their_turns() -> None:
    group_episodes = [
        EpisodeTurns([1.0, 0.0], [1, 1], "e", ("e", "x"), False, ["s", "t"], [{"p": 1.0}, {"p": 0.0}]),
        EpisodeTurns([0.0, 3.0], [1, 1], "e", ("e", "x"), False, ["s", "s"], [{"p": 0.0}, {"p": 3.0}]),
    ]
    rows = [(0, 1), (1, 0), (0, 0), (1, 1)]
    rewards = torch.tensor([[group_episodes[episode].rewards[turn]] for episode, turn in rows])
    for name in ("gigpo", "gdpo", "rae"):
        choice = read_estimator(name, {}, gamma=0.5, supplies=EVERYTHING)
        wanted, _ = choice.compute_turns(group_episodes, ["g", "g"])
        found = choice.compute(
            rewards,
            torch.ones(4, 1),
            episodes=[episode for episode, _ in rows],
            turns=[[turn] for _, turn in rows],
            group_ids=["g"] * 4,
            played=[group_episodes[episode] for episode, _ in rows],
        )
        expected = [float(wanted[episode][turn]) for episode, turn in rows]
        assert found.advantages[:, 0].tolist() == pytest.approx(expected, abs=1e-6)
        assert any(expected)


def test_an_episode_says_what_estimators_need_in_its_outline() -> None:
    infos: list[dict[str, Any]] = [{"agent": "x", "reward_components": {"p": 1.0}}, {"state_key": 7}, {}]
    turns = [
        Turn([1], [2, 3], None, 1.0, f"observation {index}", "", "stop", info)
        for index, info in enumerate(infos)
    ]
    episode = Episode("multi:Game", 1, turns, False, True, "max_turns", env_kwargs={"size": 3})
    needs: Any = ("state_keys", "reward_components", "agent_ids")
    outline = without_tokens(episode, needs)
    found, whole = EpisodeTurns.of(outline, needs), EpisodeTurns.of(episode, needs)
    assert (found.rewards, found.env_id, found.truncated) == ([1.0] * 3, "multi:Game(size=3)", True)
    assert found.agent_id == whole.agent_id == ("multi:Game", "x")
    assert found.state_keys[1:] == whole.state_keys[1:] == [whole.state_keys[1], "7"]
    assert found.reward_components == whole.reward_components == [{"p": 1.0}, {}, {}]
    assert EpisodeTurns.of(without_tokens(episode), ()).state_keys == []


def test_every_plugin_declares_supplies_that_exist() -> None:
    for name in trainer_names():
        supported = load_trainer(name).supported
        given = {*supported.supplies, *(supported.supplies_to_stats or ())}
        assert given <= {*NEEDS, "truncated"}, name
        assert "group_ids" in given


def test_a_reward_that_is_not_finite_has_the_index_of_its_episode_beside_masked_ones() -> None:
    choice = read_estimator("grpo", {"truncation": "mask"}, supplies=EVERYTHING)
    cut = EpisodeTurns([1.0], [1], truncated=True)
    with pytest.raises(NonFiniteReward, match="episode 2, turn 1: reward inf"):
        choice.compute_turns([cut, cut, EpisodeTurns([1.0, float("inf")], [1, 1])], [0, 0, 0])


def test_components_belong_to_the_turns_of_the_ids_that_are_given() -> None:
    mask = torch.tensor([[1, 1, 0, 1]])
    by_mask = _on_first_tokens([[[1.0], [2.0]]], mask, None)
    assert by_mask[..., 0].tolist() == [[1.0, 0.0, 0.0, 2.0]]
    touching = _on_first_tokens([[[1.0], [2.0], [3.0]]], mask, torch.tensor([[0, 1, -1, 2]]))
    assert touching[..., 0].tolist() == [[1.0, 2.0, 0.0, 3.0]]
    for too_few in (None, torch.tensor([[0, 1, -1, 2]])):
        with pytest.raises(ConfigError, match=r"reward_components: row 0 has [23] turns, but 1 were played"):
            _on_first_tokens([[[1.0]]], mask, too_few)


def test_an_estimator_without_its_data_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"gae needs values \(.*\), which this trainer does not"):
        read_estimator("gae", {"lam": 1.0})


@pytest.mark.parametrize(
    ("name", "needed"), [("gigpo", "state_keys"), ("gdpo", "reward_components"), ("rae", "agent_ids")]
)
def test_rows_without_what_the_estimator_needs_are_rejected(name: str, needed: str) -> None:
    choice = read_estimator(name, {}, supplies=EVERYTHING)
    with pytest.raises(ConfigError, match=rf"{name} needs {needed}, .*, but the rows have none"):
        choice.compute(REWARDS, MASK, group_ids=["a", "a"])


def supported(**options: Any) -> SupportedTrainer:
    return SupportedTrainer("Acme", "gem_acme", "acme", versions=">=1,<2", hook="", **options)


def test_what_a_trainer_supplies_may_depend_on_the_statistics() -> None:
    plain = supported(supplies=("group_ids", "env_ids", "lengths"))
    split = supported(supplies=("group_ids", "env_ids", "lengths"), supplies_to_stats=("group_ids",))
    assert read_estimator("opo", {}, trainer=plain).name == "opo"
    assert read_estimator("opo", {}, trainer=split).name == "opo"
    assert read_estimator("rebn", {"statistics": "env"}, trainer=plain).options == {"statistics": "env"}
    with pytest.raises(ConfigError, match=r"rebn needs env_ids \(.*\), which Acme does not .* group_ids$"):
        read_estimator("rebn", {"statistics": "env"}, trainer=split)
    with pytest.raises(ConfigError, match=r"it supplies nothing$"):
        read_estimator("grpo", {}, trainer=supported(supplies=()))


def test_threads_of_episodes_reach_the_estimator() -> None:
    """An episode with a sub-agent, in two rows, beside one that GEM did not play."""
    threads = {1: Thread(called_by=0, returns_to=0)}
    played = EpisodeTurns([1.0, 2.0, 4.0, 8.0], [1] * 4, turn_threads=(0, 1, 1, 0), threads=threads)
    other = EpisodeTurns([3.0, 1.0], [1, 1])
    links = Threads((0, 1, 1, 0), threads)
    rewards = torch.tensor([[1.0, 0, 8], [2, 0, 4], [3, 0, 1]])
    mask = torch.tensor([[1, 0, 1]] * 3)
    rows: dict[str, Any] = {"episodes": [0, 0, 1], "turns": [[0, 3], [1, 2], [0, 1]]}
    for name in ("rebn", "rloo"):
        choice = read_estimator(name, {}, gamma=0.5, supplies=EVERYTHING)
        groups: Any = {"group_ids": ["g", "g"]} if choice.needs_groups else {}
        wanted = choice.estimator(
            with_threads([played.rewards, other.rewards], [links, None]), gamma=0.5, **groups
        )
        found, stats = choice.compute_turns([played, other], ["g", "g"])
        assert [one.tolist() for one in found] == [one.tolist() for one in wanted]
        result = choice.compute(rewards, mask, group_ids=["g"] * 3, played=[played, played, None], **rows)
        assert result.advantages[:2, ::2].tolist() == pytest.approx(
            np.array([[wanted[0][0], wanted[0][3]], [wanted[0][1], wanted[0][2]]]), abs=1e-6
        )
        assert stats.to_wire() == pytest.approx(result.stats.to_wire())
        assert stats.count == 6
    choice = read_estimator("mt_grpo", {}, supplies=EVERYTHING)
    with pytest.raises(ConfigError, match="mt_grpo: episode 0 has side threads"):
        choice.compute_turns([played, other], ["g", "g"])
    with pytest.raises(ConfigError, match="mt_grpo: row 0 has side threads"):
        choice.compute(rewards, mask, group_ids=["g"] * 3, played=[played, played, None], **rows)
