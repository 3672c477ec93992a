"""Ids are compared by value, or rejected with the place and the reason."""

from __future__ import annotations

import math
import uuid
from enum import Enum
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from gem_core import advantages
from gem_core.advantages import update_role_baselines
from gem_core.errors import ConfigError

REWARDS = [[1.0], [0.0], [1.0], [1.0, 0.5]]


class Side(Enum):
    LEFT = "left"
    RIGHT = "right"


UUIDS = [uuid.UUID(int=1), uuid.UUID(int=1), uuid.UUID(int=2), uuid.UUID(int=2)]
SAME = [
    np.array([7, 7, 8, 8]),
    np.array([7, 7, 8, 8], dtype=np.uint8),
    np.array(["7", "7", "8", "8"]),
    np.array(["x", "x", 8, 8], dtype=object),
    [np.int64(7), 7, np.int32(8), 8],
    [np.array(7), np.array(7), np.array(8), np.array(8)],
    [np.str_("x"), "x", "y", np.str_("y")],
    [("env", np.int64(7)), ("env", 7), ("env", 8), ("env", np.int8(8))],
    (7, 7, 8, 8),
    range(0, 4) and [b"7", b"7", b"8", b"8"],
    [Side.LEFT, Side.LEFT, Side.RIGHT, Side.RIGHT],
    UUIDS,
]
"""Forms of ids that make the first two and the last two episodes a group."""
ESTIMATORS = {
    "grpo": lambda ids: advantages.grpo(REWARDS, group_ids=ids),
    "dr_grpo": lambda ids: advantages.dr_grpo(REWARDS, group_ids=ids),
    "rloo": lambda ids: advantages.rloo(REWARDS, group_ids=ids),
    "opo": lambda ids: advantages.opo(REWARDS, group_ids=ids, lengths=[[3], [1], [2], [1, 1]]),
    "maxrl": lambda ids: advantages.maxrl(REWARDS, group_ids=ids),
    "mt_grpo": lambda ids: advantages.mt_grpo(REWARDS, group_ids=ids),
    "reinforce_plus_plus_baseline": lambda ids: advantages.reinforce_plus_plus_baseline(
        REWARDS, group_ids=ids, lengths=[[3], [1], [2], [1, 1]]
    ),
    "gdpo": lambda ids: advantages.gdpo(
        REWARDS, group_ids=ids, reward_components=[[[1.0]], [[0.0]], [[1.0]], [[1.0], [0.5]]]
    ),
    "gigpo": lambda ids: advantages.gigpo(
        REWARDS, group_ids=ids, state_keys=[["s"], ["s"], ["s"], ["s", "t"]]
    ),
    "rae": lambda ids: advantages.rae(REWARDS, agent_ids=ids),
    "rebn group": lambda ids: advantages.rebn(REWARDS, statistics="group", group_ids=ids),
    "rebn env": lambda ids: advantages.rebn(REWARDS, statistics="env", env_ids=ids),
}


def values(result: Any) -> list[list[float]]:
    return [episode_values.tolist() for episode_values in result]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_form_of_the_same_ids_gives_the_same_advantages(name: str) -> None:
    wanted = values(ESTIMATORS[name](["a", "a", "b", "b"]))
    assert any(value for episode_values in wanted for value in episode_values)
    for ids in SAME:
        assert values(ESTIMATORS[name](ids)) == wanted, ids


@pytest.mark.parametrize("name", ESTIMATORS)
def test_tensors_of_ids_give_the_same_advantages(name: str) -> None:
    torch = pytest.importorskip("torch", reason="needs the extra 'train'")
    wanted = values(ESTIMATORS[name](["a", "a", "b", "b"]))
    ids = torch.tensor([7, 7, 8, 8])
    for form in (ids, list(ids), tuple(ids.int()), [("env", one) for one in ids]):
        assert values(ESTIMATORS[name](form)) == wanted, form


class Mutable:
    """An object that Python compares by identity."""


class Never:
    """An object that equals nothing, not even itself, as a missing value of pandas does."""

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0


NAN = float("nan")


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([None, None, 1, 1], "episode 0 has the id None.* which is missing"),
        ([1, 1, NAN, NAN], "episode 2 has the id nan.* which is not an id"),
        ([1, 1, np.nan, float("nan")], "episode 2 has the id nan"),
        (np.array([1.0, 1.0, 2.0, 2.0]), "episode 0 has the id 1.0, which is not an id"),
        ([1, 1, Fraction(1, 2), 2], "which is not an id"),
        ([True, True, False, False], "episode 0 has the id True, which is not an id"),
        ([np.datetime64("NaT"), 1, 2, 2], "episode 0 has the id"),
        ([[1], [1], [2], [2]], "episode 0 has the id .*, which cannot be compared as a whole"),
        ([{"task": 1}] * 4, "episode 0 has the id .*, which cannot be compared as a whole"),
        ([Mutable(), Mutable(), Mutable(), Mutable()], "which is compared by identity"),
        ([1, Never(), 2, 2], "episode 1 has the id .*, which differs from itself"),
        ([("env", None)] * 4, "which is missing"),
        ([("env", NAN)] * 4, "which is not an id"),
        ([np.array([1]), np.array([1]), 2, 2], "cannot be compared as a whole"),
        ([1, 1, 2], "3 entries for 4 episodes"),
        (np.array([[1], [1], [2], [2]]), r"of shape \(4, 1\): expected one entry per episode"),
        ("aabb", "is a str: expected a sequence with one entry per episode"),
        ({1: 1, 2: 2, 3: 3, 4: 4}, "is a dict: expected a sequence"),
        (iter([1, 1, 2, 2]), "expected a sequence"),
        (7, "is a int: expected a sequence"),
    ],
)  # fmt: skip
def test_ids_that_cannot_be_compared_by_value_are_rejected(name: str, ids: Any, message: str) -> None:
    argument = {"rae": "agent_ids", "rebn env": "env_ids"}.get(name, "group_ids")
    with pytest.raises(ConfigError, match=f"{argument}.*{message}"):
        ESTIMATORS[name](ids)


def test_tensors_that_are_no_ids_are_rejected() -> None:
    torch = pytest.importorskip("torch", reason="needs the extra 'train'")
    for ids, message in (
        (torch.tensor([1.0, 1, 2, 2]), "which is not an id"),
        (torch.tensor([True, True, False, False]), "which is not an id"),
        (torch.zeros(4, 1, dtype=torch.int64), r"of shape \(4, 1\)"),
        (torch.tensor(1), r"of shape \(\)"),
        ([torch.tensor([1])] * 4, "which cannot be compared as a whole"),
        (torch.tensor([1, 2]), "2 entries for 4 episodes"),
    ):
        with pytest.raises(ConfigError, match=message):
            advantages.grpo(REWARDS, group_ids=ids)


def test_keys_of_states_are_ids() -> None:
    groups = ["a", "a", "b", "b"]
    wanted = values(advantages.gigpo(REWARDS, group_ids=groups, state_keys=[["s"], ["s"], ["s"], ["s", "t"]]))
    keys = [np.array([1]), (np.int64(1),), [1], np.array([1, 2])]
    assert values(advantages.gigpo(REWARDS, group_ids=groups, state_keys=keys)) == wanted
    for wrong, message in (
        ([[1], [1], [1], [1, None]], "episode 3, turn 1 has the id None"),
        ([[1], [1.5], [1], [1, 2]], "episode 1, turn 0 has the id 1.5"),
        ([[1], [1], [1], [1]], "state_keys: episode 3: 1 entries for 2 turns"),
        ([[1], [1], [1], "st"], "state_keys: episode 3 is a str"),
        (["s", "s", "s", "t"], "state_keys: episode 0 is a str"),
    ):
        with pytest.raises(ConfigError, match=message):
            advantages.gigpo(REWARDS, group_ids=groups, state_keys=wrong)


def test_baselines_of_roles_are_found_by_value() -> None:
    torch = pytest.importorskip("torch", reason="needs the extra 'train'")
    baselines = {torch.tensor(7): 0.5, np.int64(8): 0.25}
    found = values(advantages.rae(REWARDS, agent_ids=torch.tensor([7, 7, 8, 8]), role_baselines=baselines))
    assert found == [[0.5], [-0.5], [0.75], [1.25, 1.25]]
    assert update_role_baselines(baselines, REWARDS, list(torch.tensor([7, 7, 8, 8])), decay=0.5) == {
        7: 0.375,
        8: pytest.approx((0.25 / 2 + 0.5) / 2 + 0.75),
    }


@pytest.mark.parametrize(
    "truncated", [[False, True, False, False], np.array([0, 1, 0, 0]), [0.0, 1.0, 0, np.False_]]
)
def test_flags_may_be_bools_or_zeros_and_ones(truncated: Any) -> None:
    found = values(advantages.dr_grpo(REWARDS, group_ids=[1, 1, 1, 1], truncated=truncated))
    assert found[1] == [0.0]
    assert found[0] == pytest.approx([1 - 3.5 / 3])


@pytest.mark.parametrize(
    "truncated",
    [
        ["no", "yes", "no", "no"],
        [None] * 4,
        [0, 2, 0, 0],
        [math.nan] * 4,
        [[0]] * 4,
        "0100",
        [0, 1],
        1,
        [0.5] * 4,
    ],
)
def test_other_flags_are_rejected(truncated: Any) -> None:
    with pytest.raises(ConfigError, match="truncated"):
        advantages.rebn(REWARDS, truncated=truncated)
    torch = pytest.importorskip("torch", reason="needs the extra 'train'")

    with pytest.raises(ConfigError, match="truncated"):
        advantages.rebn.tensors(torch.ones(4, 2), torch.ones(4, 2), truncated=truncated)


@pytest.mark.parametrize("gamma", ["0.9", None, True, [0.9], 1.5, math.nan, "x", np.array([0.9, 0.9]), 1j])
def test_a_discount_that_is_no_number_is_rejected(gamma: Any) -> None:
    for call in (
        lambda: advantages.rebn(REWARDS, gamma=gamma),
        lambda: advantages.rae(REWARDS, agent_ids=[1, 1, 2, 2], gamma=gamma),
        lambda: advantages.gae(REWARDS, values=REWARDS, gamma=gamma),
        lambda: advantages.returns(REWARDS, gamma),
    ):
        with pytest.raises(ConfigError, match="gamma"):
            call()
    for name in ("eps", "min_std"):
        with pytest.raises(ConfigError, match=name):
            advantages.rebn(REWARDS, **{name: -1.0 if isinstance(gamma, float) else gamma})


def test_a_discount_may_be_a_scalar_of_numpy_or_torch() -> None:
    torch = pytest.importorskip("torch", reason="needs the extra 'train'")
    wanted = values(advantages.rebn(REWARDS, gamma=0.5))
    for gamma in (np.float32(0.5), np.array(0.5), torch.tensor(0.5)):
        assert values(advantages.rebn(REWARDS, gamma=gamma)) == wanted
    assert values(advantages.rebn(REWARDS, gamma=np.int64(1))) == values(advantages.rebn(REWARDS))


@pytest.mark.parametrize(
    "ids", [[0.0, 1.0], [0.5, 1.7], [True, False], np.array([0.0, 1.0]), ["0", "1"], [None, 0]]
)
def test_turn_ids_of_tokens_are_integers(ids: Any) -> None:
    with pytest.raises(ConfigError, match=r"episode 0: turn ids are .*: expected integers"):
        advantages.to_tokens([[1.0, 2.0]], [ids])
    assert advantages.to_tokens([[1.0, 2.0], []], [np.array([-1, 1, 0], dtype=np.int8), []])[0].tolist() == [
        0,
        2,
        1,
    ]
