"""In a batch of several rows per episode, every turn gets the same credit as in a row of its whole
episode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'train'")

from gem_core.advantages import get_estimator  # noqa: E402
from gem_core.advantages._rows import by_episode  # noqa: E402
from gem_core.errors import ConfigError, NonFiniteReward  # noqa: E402
from tests.advantages.batches import CASE_NAMES, CASES, Rows, rows  # noqa: E402

WITH_TURNS = [
    pytest.param(case, id=name)
    for case, name in zip(CASES, CASE_NAMES, strict=True)
    if case["expected"]["stats"][0]
]
NAMES = ("rebn", "reinforce", "grpo", "rloo")


def turn_rows(whole: Rows, seed: int) -> tuple[Any, Any, list[int], list[int]]:
    """Return rewards, mask, and the episode row and index of each turn, shuffled, with a pad at the end."""
    pieces = [
        (episode, turn)
        for episode, ids in enumerate(whole.turn_ids)
        for turn in range(max(ids) + 1)
    ]  # fmt: skip
    order = np.random.default_rng(seed).permutation(len(pieces))
    width = len(whole.turn_ids[0])
    rewards = torch.zeros(len(pieces) + 1, width, dtype=torch.float64)
    mask = torch.zeros(len(pieces) + 1, width, dtype=torch.int64)
    for row, piece in enumerate(order):
        episode, turn = pieces[piece]
        for place, turn_id in enumerate(whole.turn_ids[episode]):
            if turn_id == turn:
                mask[row, place] = 1
                rewards[row, place] = whole.token_rewards[episode][place]
    episodes, turns = zip(*(pieces[piece] for piece in order), strict=True)
    return rewards, mask, [*episodes, -1], [*turns, 0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", WITH_TURNS)
def test_turns_get_the_credit_of_their_episode(case: dict[str, Any], name: str) -> None:
    whole = rows(case["episodes"])
    estimator = get_estimator(name)
    options: dict[str, Any] = {"gamma": case["gamma"]}
    groups = [episode["group"] for episode in case["episodes"]]
    grouped = "group_ids" in estimator.needs
    wanted = estimator.tensors(
        torch.tensor(whole.token_rewards, dtype=torch.float64),
        torch.tensor(whole.response_mask),
        turn_ids=torch.tensor(whole.turn_ids),
        **options,
        **({"group_ids": groups} if grouped else {}),
    )
    rewards, mask, episodes, turns = turn_rows(whole, seed=3)
    names = [f"episode {number}" for number in episodes]
    row_groups = {"group_ids": [groups[n] if n >= 0 else "pad" for n in episodes]} if grouped else {}
    found = by_episode(
        estimator, rewards, mask, episodes=names, turns=turns, **row_groups, **options
    )  # fmt: skip
    assert found.stats.count == wanted.stats.count
    for row, (episode, turn) in enumerate(zip(episodes[:-1], turns[:-1], strict=True)):
        here = torch.tensor(whole.turn_ids[episode]) == turn
        for got, whole_row in ((found.advantages, wanted.advantages), (found.returns, wanted.returns)):
            torch.testing.assert_close(got[row], torch.where(here, whole_row[episode], 0.0))
    assert not found.advantages[-1].any()
    assert not found.returns[-1].any()


def test_a_row_with_a_mask_of_any_type_and_a_return_beyond_float32() -> None:
    estimator = get_estimator("reinforce")
    rewards = torch.tensor([[0.0, 1e40], [0.0, 2.0]], dtype=torch.float64)
    mask = torch.tensor([[0.0, 1.0], [0.0, 1.0]], dtype=torch.bfloat16)
    found = by_episode(estimator, rewards, mask, episodes=["a", "b"], turns=[0, 0], gamma=1.0)
    assert found.advantages.tolist() == [[0.0, float("inf")], [0.0, 2.0]]


def test_invalid_arguments_are_rejected() -> None:
    estimator = get_estimator("rebn")
    two = torch.ones(2, 3)
    with pytest.raises(ConfigError, match="episodes: 1 entries for 2 rows"):
        by_episode(estimator, two, two, episodes=["a"], turns=[0, 1])
    with pytest.raises(ConfigError, match=r"row 0: response_mask holds 2.0"):
        by_episode(estimator, two, two * 2, episodes=["a", "b"], turns=[0, 0])
    with pytest.raises(ConfigError, match=r"response_mask is a numpy.ndarray"):
        by_episode(estimator, two, two.numpy(), episodes=["a", "b"], turns=[0, 0])
    with pytest.raises(NonFiniteReward, match=r"\[1\]\[0\]|row 1"):
        by_episode(
            estimator, two * torch.tensor([[1.0], [torch.nan]]), two, episodes=["a", "b"], turns=[0, 0]
        )


TWO = torch.ones(4, 1)
OUTCOMES = torch.tensor([[1.0], [0.0], [0.0], [1.0]])
GROUPS = ["p", "p", "q", "q"]


def group_advantages(**changes: Any) -> list[float]:
    arguments = {"episodes": ["p0", "p1", "q0", "q1"], "turns": [0] * 4, "group_ids": GROUPS, **changes}
    mask = arguments.pop("mask", TWO)
    found = by_episode(get_estimator("dr_grpo"), OUTCOMES, mask, **arguments)
    result: list[float] = found.advantages[:, 0].tolist()
    return result


@pytest.mark.parametrize(
    "episodes",
    [
        [("p", 0), ("p", 1), ("q", 0), ("q", 1)],
        torch.tensor([5, 6, 7, 8]),
        list(torch.tensor([5, 6, 7, 8])),
        np.array(["a", "b", "c", "d"]),
    ],
)
@pytest.mark.parametrize("turns", [[0] * 4, torch.zeros(4, dtype=torch.int32), list(np.zeros(4, np.int8))])
def test_every_form_of_ids_names_the_same_episodes(episodes: Any, turns: Any) -> None:
    groups = list(torch.tensor([1, 1, 2, 2]))
    assert group_advantages(episodes=episodes, turns=turns, group_ids=groups) == [0.5, -0.5, -0.5, 0.5]


def test_rows_of_an_episode_in_any_order_with_masked_rows_between() -> None:
    rewards = torch.tensor([[4.0], [9.0], [1.0], [2.0], [9.0]])
    mask = torch.tensor([[1], [0], [1], [1], [0]])
    found = by_episode(
        get_estimator("reinforce"),
        rewards,
        mask,
        episodes=["a", "a", "b", "a", None],
        turns=[1, 1, 0, 0, -1],
    )
    assert found.advantages[:, 0].tolist() == [4.0, 0.0, 1.0, 6.0, 0.0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"episodes": [0, 1, 0, 1]}, "rows 0 and 2 both hold turn 0 of episode 0: expected an id"),
        ({"episodes": ["a", "a", "b", "b"]}, "rows 0 and 1 both hold turn 0 of episode 'a'"),
        ({"episodes": ["a", "a", "b", "b"], "turns": [0, 2, 0, 1]}, "row 1 holds turn 2, but no "),
        ({"turns": [1, 0, 0, 0]}, "episode 'p0': row 0 holds turn 1, but no row"),
        ({"turns": [0, 0, 0, -1]}, "turns: row 3 has -1: expected a whole number of at least 0"),
        ({"turns": [0, 0, 0, 0.5]}, "turns: row 3 has the id 0.5"),
        ({"turns": torch.zeros(4)}, "turns: row 0 has the id 0.0"),
        ({"turns": [0, False, 0, 0]}, "turns: row 1 has the id False"),
        ({"turns": [0, 0, 0, "0"]}, "turns: row 3 has '0': expected a whole number"),
        ({"turns": [0, 0, 0, [0, 1]]}, r"row 3 of episode 'q1' lists .*0, 1., but .* have 1 turns"),
        ({"turns": [0, 0, 0, []]}, r"row 3 of episode 'q1' lists .*, but .* have 1 turns"),
        ({"turns": [0, 0, 0, [True]]}, "turns: row 3 has the id True"),
        ({"turns": [0, 0, 0]}, "turns: 3 entries for 4 rows"),
        ({"episodes": [None] * 4}, "episodes: row 0 has the id None"),
        ({"episodes": [1.0, 2.0, 3.0, 4.0]}, "episodes: row 0 has the id 1.0"),
        ({"episodes": [[1], [2], [3], [4]]}, "episodes: row 0 has the id .* cannot be compared"),
        ({"episodes": [object() for _ in range(4)]}, "compared by identity"),
        (
            {"episodes": ["a", "a", "b", "b"], "turns": [0, 1, 0, 1], "group_ids": ["p", "q", "p", "p"]},
            "group_ids: rows 0 and 1 of episode 'a' have 'p' and 'q': expected the same value",
        ),
        ({"group_ids": [1, 1, 2, float("nan")]}, "group_ids: row 3 has the id nan"),
        ({"group_ids": [1, 1, 2]}, "group_ids: 3 entries for 4 rows"),
        (
            {"episodes": [*"aabb"], "turns": [0, 1, 0, 1], "mask": torch.tensor([[0], [1], [1], [1]])},
            "episode 'a': row 1 holds turn 1, but no row that is not masked out holds turn 0",
        ),
    ],
)  # fmt: skip
def test_rows_that_collide_contradict_or_leave_a_gap_are_named(changes: dict[str, Any], message: str) -> None:
    assert group_advantages() == [0.5, -0.5, -0.5, 0.5]
    with pytest.raises(ConfigError, match=message):
        group_advantages(**changes)


def test_baselines_of_an_episode_must_agree() -> None:
    estimator, rows_of_one = get_estimator("remax"), {"episodes": ["a", "a"], "turns": [0, 1]}
    two = torch.ones(2, 1)
    found = by_episode(estimator, two, two, baselines=torch.tensor([0.5, 0.5]), **rows_of_one)
    assert found.advantages[:, 0].tolist() == [1.5, 0.5]
    with pytest.raises(ConfigError, match=r"baselines: rows 0 and 1 of episode 'a' have 0\.5 and 1\.0"):
        by_episode(estimator, two, two, baselines=[0.5, 1.0], **rows_of_one)


def test_interleaved_rows_that_hold_several_turns() -> None:
    """Episode "a" goes on in its first row after a turn in another one."""
    mask = torch.tensor([[1, 0, 1, 0], [0, 1, 0, 0], [1, 1, 0, 0]])
    rewards = torch.tensor([[0.0, 0, 0, 1], [0, 2, 0, 0], [3, 4, 0, 0]])
    arguments = {
        "episodes": ["a", "a", "b"],
        "turns": [(0, 2), 1, np.array([1, 0])],
        "turn_ids": torch.tensor([[0, -1, 1, -1], [-1, 0, -1, -1], [0, 1, -1, -1]]),
    }
    found = by_episode(get_estimator("reinforce"), rewards, mask, **arguments)
    assert found.advantages.tolist() == [[3, 0, 1, 0], [0, 3, 0, 0], [3, 7, 0, 0]]
    with pytest.raises(ConfigError, match=r"row 2 of episode 'b' .* turns without a token between"):
        by_episode(get_estimator("reinforce"), rewards, mask, **{**arguments, "turn_ids": None})
    with pytest.raises(ConfigError, match="row 2 holds twice turn 0 of episode 'b'"):
        by_episode(get_estimator("reinforce"), rewards, mask, **{**arguments, "turns": [(0, 2), 1, (0, 0)]})
    with pytest.raises(ConfigError, match=r"state_keys: row 0: 1 entries for 2 turns"):
        by_episode(
            get_estimator("gigpo"), rewards, mask, group_ids=["g"] * 3,
            state_keys=[["s"], ["s"], ["s", "s"]], **arguments,
        )  # fmt: skip
