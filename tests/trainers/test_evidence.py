"""The checks of a trainer fail on a row with a single error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'train'")

from tests.trainers.evidence import (  # noqa: E402
    Played,
    Row,
    assert_row_is_right,
    assert_same_direction,
    conversation,
    cosine,
    oracle,
    played,
)

REQUESTS = [
    {"prompt": [1, 2], "response": [3, 4], "logprobs": [-0.1, -0.2], "finish_reason": "stop"},
    {"prompt": [1, 2, 3, 4, 9], "response": [5], "logprobs": [-0.3], "finish_reason": "stop"},
]
ADVANTAGES = [0.5, -1.0]


def row() -> Row:
    return Row(
        prompt=[1, 2],
        response=[3, 4, 9, 5],
        mask=[1, 1, 0, 1],
        advantages=[0.5, 0.5, 0.0, -1.0],
        old=[-0.1, -0.2, 0.0, -0.3],
        rollout=None,
        reference=None,
    )


def shift(values: list[float]) -> list[float]:
    return [*values[1:], 0.0]


@pytest.mark.parametrize(
    "damage",
    [
        lambda row: setattr(row, "advantages", shift(row.advantages)),
        lambda row: setattr(row, "advantages", [0.5, 0.5, 0.1, -1.0]),
        lambda row: setattr(row, "mask", [1, 1, 1, 1]),
        lambda row: setattr(row, "response", [3, 4, 9, 6]),
        lambda row: setattr(row, "old", shift(row.old)),
        lambda row: setattr(row, "rollout", [-0.1, -0.2, 0.0, -0.4]),
    ],
    ids=["shifted", "off-response", "mask", "token", "weights", "rollout"],
)
def test_a_wrong_row_is_found(damage: Callable[[Row], None]) -> None:
    made = Played(REQUESTS, [0.0, 1.0])
    assert_row_is_right(row(), made, ADVANTAGES)
    wrong = row()
    damage(wrong)
    with pytest.raises(AssertionError):
        assert_row_is_right(wrong, made, ADVANTAGES)


def test_a_row_of_a_turn_is_found_by_its_tokens() -> None:
    made = Played(REQUESTS, [0.0, 1.0])
    last = Row([1, 2, 3, 4, 9], [5], [1], [-1.0], [-0.3], None, None)
    assert_row_is_right(last, made, ADVANTAGES)
    last.advantages = [0.5]  # the other turn's advantage
    with pytest.raises(AssertionError):
        assert_row_is_right(last, made, ADVANTAGES)


def test_requests_of_a_conversation_are_put_in_order() -> None:
    assert conversation([1, 2, 3, 4, 9, 5], REQUESTS[::-1]).turns == [-1, -1, 0, 0, -1, 1]


def test_a_row_may_end_within_its_last_response() -> None:
    longer = [REQUESTS[0], {**REQUESTS[1], "response": [5, 6, 7]}]
    assert conversation([1, 2, 3, 4, 9, 5, 6], longer).turns == [-1, -1, 0, 0, -1, 1, 1]
    assert conversation([1, 2, 3, 4, 9, 5, 8], longer).turns == [-1, -1, 0, 0]
    assert conversation([1, 2, 3, 4, 9], longer).turns == [-1, -1, 0, 0]


def test_a_continued_request_is_one_turn(tmp_path: Path) -> None:
    tokenizer: Any = SimpleNamespace(decode=lambda ids: "Episode 7-1.")
    parts = [
        {"prompt": [1, 2], "response": [3], "logprobs": [-0.1], "finish_reason": "abort"},
        {"prompt": [1, 2, 3], "response": [4], "logprobs": [-0.2], "finish_reason": "stop"},
        REQUESTS[1],
    ]
    (tmp_path / "engine.jsonl").write_text("".join(json.dumps(part) + "\n" for part in parts))
    steps = [{"episode": "7-1", "reward": reward} for reward in (0.0, 1.0)]
    (tmp_path / "env.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    (episode,) = played(tmp_path, tokenizer).values()
    assert episode.requests == REQUESTS


def test_the_oracle_normalizes_over_all_turns() -> None:
    first, second = oracle([[0.0, 1.0], [0.5]], gamma=0.5)
    flat = torch.tensor([*first, *second])
    assert float(flat.mean()) == pytest.approx(0, abs=1e-6)
    assert first[0] == pytest.approx(second[0])  # both have the return 0.5
    assert float(flat.std(correction=0)) == pytest.approx(1)


def test_cosine_of_gradients() -> None:
    along, across = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    assert cosine([along], [3 * along]) == pytest.approx(1)
    assert cosine([along], [across]) == pytest.approx(0)
    assert cosine([None, along], [across, along]) == pytest.approx(0.5**0.5)


def test_a_zero_gradient_agrees_only_with_a_zero_gradient() -> None:
    along, zero = torch.tensor([1.0, 0.0]), torch.zeros(2)
    assert_same_direction([3 * along], [along])
    assert_same_direction([zero, None], [zero, zero])
    for gradient, wanted in ((zero, along), (along, zero), (-along, along)):
        with pytest.raises(AssertionError):
            assert_same_direction([gradient], [wanted])
