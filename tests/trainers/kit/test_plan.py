"""The plan that doctor prints."""

from __future__ import annotations

import pytest

from gem_core.trainers import Plan
from gem_core.trainers._plan import SourceRows, count_rows, describe_budget, describe_truncation


def test_rows_are_counted_by_source_player_and_reward() -> None:
    row, other = ("train", "gsm8k", "single_turn_agent", "verl"), ("train", "game", "gem", "the environment")
    evaluated = ("eval", "gsm8k", "single_turn_agent", "verl")
    counted = count_rows([row, other, row, evaluated])
    assert counted == [SourceRows(*row, 2), SourceRows(*other, 1), SourceRows(*evaluated, 1)]
    assert str(counted[0]) == "train: 2 rows of gsm8k, played by single_turn_agent, rewarded by verl"
    assert str(counted[1]).startswith("train: 1 row of game, ")
    assert str(SourceRows(*other, 0)).startswith("train: 0 rows of game, ")
    assert str(SourceRows(*other, 12_345)).startswith("train: 12,345 rows of game, ")


def test_a_plan_is_text() -> None:
    plan = Plan([SourceRows("train", "game", "gem", "the environment", None)], "rebn", ["t"], ["n"])
    assert plan.lines() == [
        "train: rows of game, played by gem, rewarded by the environment",
        "estimator: rebn",
        "tokens: t",
        "note: n",
    ]


@pytest.mark.parametrize(
    ("turns", "tokens", "limit", "expected"),
    [
        (
            12,
            320,
            1024,
            "12 turns of at most 320 sampled tokens, 3,840 in all, but it is cut at m=1,024 tokens",
        ),
        (3, 320, 1024, "960 in all; m=1,024 leaves 64 for observations"),
        (None, 320, 1024, "any number of turns of at most 320 sampled tokens; it is cut at m=1,024"),
        (1, None, 1024, "1 turn of at most 1,024 sampled tokens, 1,024 in all; m=1,024 leaves 0"),
        (2, None, 1024, "2,048 in all, but it is cut"),
        (2, 10, None, "2 turns of at most 10 sampled tokens"),
        (None, None, None, "1,000 turns of any length"),
        (None, 320, None, "1,000 turns of at most 320 sampled tokens"),
    ],
)
def test_the_budget_says_whether_an_episode_fits(turns, tokens, limit, expected) -> None:
    assert expected in describe_budget(turns, tokens, limit, "m")


def test_a_limit_may_count_the_prompt() -> None:
    assert "leaves 64 for prompt and observations" in describe_budget(3, 320, 1024, "m", with_prompt=True)
    assert "prompt and observations included" in describe_budget(None, 320, 1024, "m", with_prompt=True)


@pytest.mark.parametrize(
    ("params", "noted"),
    [
        ({"top_p": 0.95, "top_k": 50, "min_p": 0.1, "temperature": 0.5}, ["top_p", "top_k", "min_p"]),
        ({"top_p": 1.0, "top_k": -1, "min_p": 0.0}, []),
        ({"top_p": None, "top_k": 0}, []),
        ({}, []),
    ],
)
def test_sampling_from_fewer_tokens_is_noted(params: dict[str, float | None], noted: list[str]) -> None:
    notes = describe_truncation("sampling.", params)
    assert [note.partition("=")[0] for note in notes] == [f"sampling.{name}" for name in noted]
