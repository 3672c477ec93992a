"""In a batch of turn rows, every turn gets the same credit as in a row of its whole episode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'train'")

from gem_core.advantages.registry import get_estimator  # noqa: E402
from gem_core.advantages.turn_rows import by_episode  # noqa: E402
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
        for place, of_turn in enumerate(whole.turn_ids[episode]):
            if of_turn == turn:
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
    wanted = estimator.tensors()(
        torch.tensor(whole.token_rewards, dtype=torch.float64),
        torch.tensor(whole.response_mask),
        turn_ids=torch.tensor(whole.turn_ids),
        **options,
        **({"group_ids": groups} if grouped else {}),
    )
    rewards, mask, episodes, turns = turn_rows(whole, seed=3)
    names = [f"episode {number}" for number in episodes]
    of_rows = {"group_ids": [groups[n] if n >= 0 else "pad" for n in episodes]} if grouped else {}
    found = by_episode(
        estimator.tensors(), rewards, mask, episodes=names, turns=turns, **of_rows, **options
    )  # fmt: skip
    assert found.stats.count == wanted.stats.count
    for row, (episode, turn) in enumerate(zip(episodes[:-1], turns[:-1], strict=True)):
        here = torch.tensor(whole.turn_ids[episode]) == turn
        for got, of_whole in ((found.advantages, wanted.advantages), (found.returns, wanted.returns)):
            torch.testing.assert_close(got[row], torch.where(here, of_whole[episode], 0.0))
    assert not found.advantages[-1].any()
    assert not found.returns[-1].any()


def test_a_row_with_a_mask_of_any_type_and_a_return_beyond_float32() -> None:
    tensors = get_estimator("reinforce").tensors()
    rewards = torch.tensor([[0.0, 1e40], [0.0, 2.0]], dtype=torch.float64)
    mask = torch.tensor([[0.0, 1.0], [0.0, 1.0]], dtype=torch.bfloat16)
    found = by_episode(tensors, rewards, mask, episodes=["a", "b"], turns=[0, 0], gamma=1.0)
    assert found.advantages.tolist() == [[0.0, float("inf")], [0.0, 2.0]]


def test_invalid_arguments_are_rejected() -> None:
    tensors = get_estimator("rebn").tensors()
    two = torch.ones(2, 3)
    with pytest.raises(ConfigError, match="2 rows, but 1 episode ids and 2 turns"):
        by_episode(tensors, two, two, episodes=["a"], turns=[0, 1])
    with pytest.raises(ConfigError, match=r"row 0: response_mask holds 2.0"):
        by_episode(tensors, two, two * 2, episodes=["a", "b"], turns=[0, 0])
    with pytest.raises(ConfigError, match=r"response_mask is a numpy.ndarray"):
        by_episode(tensors, two, two.numpy(), episodes=["a", "b"], turns=[0, 0])
    with pytest.raises(NonFiniteReward, match=r"\[1\]\[0\]|row 1"):
        by_episode(tensors, two * torch.tensor([[1.0], [torch.nan]]), two, episodes=["a", "b"], turns=[0, 0])
