"""Rows of tokens, and why a response ended."""

from __future__ import annotations

import numpy as np
import pytest

from gem_core.errors import ConfigError
from gem_core.images import image_part, text_part
from gem_core.rollout import Episode, Turn, inferred_finish, reported_finish, rows_of
from gem_core.rollout.rows import masked_row, turn_ids_of


def episode(*rewards: float, trainable: bool = True, mode: str = "append") -> Episode:
    turns = [
        Turn([10 + index, 11], [20 + index] * (index + 1), [-0.5] * (index + 1), reward, "o", "a", "stop")
        for index, reward in enumerate(rewards)
    ]
    return Episode("env", 3, turns, True, False, "terminated", trainable=trainable, context_mode=mode)  # type: ignore[arg-type]


def test_an_episode_row() -> None:
    (row,) = rows_of(episode(0.25, 1.0))
    assert row.token_ids == [10, 11, 20, 11, 11, 21, 21]
    assert row.turn_ids == [-1, -1, 0, -1, -1, 1, 1]
    assert row.response_mask == [0, 0, 1, 0, 0, 1, 1]
    assert row.logprobs == row.logprobs_or_zeros() == [0.0, 0.0, -0.5, 0.0, 0.0, -0.5, -0.5]
    assert row.rewards == [0.0, 0.0, 0.25, 0.0, 0.0, 0.0, 1.0]
    assert (row.prompt_ids, row.response_ids) == ([10, 11], [20, 11, 11, 21, 21])
    assert (row.spans, row.turns) == ([(2, 3), (5, 7)], range(2))


def test_turn_rows() -> None:
    first, second = rows_of(episode(0.25, 1.0), "turn")
    assert (first.prompt_ids, first.response_ids) == ([10, 11], [20])
    assert (second.prompt_ids, second.response_ids) == ([10, 11, 20, 11, 11], [21, 21])
    assert second.turn_ids == [-1] * 5 + [0, 0]
    assert second.rewards == [0.0] * 6 + [1.0]
    assert second.logprobs == [0.0] * 5 + [-0.5, -0.5]
    assert (first.spans, second.spans) == ([(2, 3)], [(5, 7)])
    assert (first.turns, second.turns) == (range(1), range(1, 2))


def test_rebuilt_turns_have_prompts_that_share_nothing() -> None:
    rebuilt = episode(0.25, 1.0, mode="rebuild")
    assert [row.prompt_ids for row in rows_of(rebuilt, "turn")] == [[10, 11], [11, 11]]
    with pytest.raises(ConfigError, match="'rebuild'"):
        rows_of(rebuilt)


@pytest.mark.parametrize("rows", ["episode", "turn"])
def test_an_untrainable_episode_has_a_masked_row_or_none(rows: str) -> None:
    failed = episode(0.25, 1.0, trainable=False)
    assert rows_of(failed, rows) == []  # type: ignore[arg-type]
    (row,) = rows_of(failed, rows, pad_id=7)  # type: ignore[arg-type]
    assert row == masked_row(7)
    assert (row.token_ids, row.response_mask, row.rewards) == ([7, 7], [0, 0], [0.0, 0.0])
    assert (row.prompt_ids, row.response_ids, row.spans) == ([7], [7], [])


def test_log_probs_that_an_engine_did_not_report() -> None:
    partly = episode(0.0, 1.0)
    partly.turns[1].logprobs = None
    (row,) = rows_of(partly)
    assert (row.logprobs, row.logprobs_or_zeros()) == (None, [0.0] * 7)
    first, second = rows_of(partly, "turn")
    assert first.logprobs is not None
    assert second.logprobs is None


@pytest.mark.parametrize(
    ("mode", "kept"), [("append", [("a",), ("a",), ("a", "b")]), ("rebuild", [("a",), (), ("b",)])]
)
def test_a_row_has_the_images_in_its_prompt(mode: str, kept: list[tuple[str, ...]]) -> None:
    parts = {name: image_part(b"\x89PNG\r\n\x1a\n" + name.encode()) for name in "ab"}
    urls = {name: part["image_url"]["url"] for name, part in parts.items()}
    played = episode(0.0, 0.0, 1.0, mode=mode)
    for turn, name in ((0, "a"), (2, "b")):
        played.turns[turn].observation = [text_part("look"), parts[name]]
    rows = rows_of(played, "turn")
    assert [row.images for row in rows] == [tuple(urls[name] for name in names) for names in kept]
    if mode == "append":
        assert rows_of(played)[0].images == tuple(urls.values())


def test_spans_give_the_turn_ids_back() -> None:
    (row,) = rows_of(episode(0.25, 0.5, 1.0))
    whole, part = (row.spans, 0), (row.spans, row.prompt_length)
    assert turn_ids_of([whole], len(row)).tolist() == [row.turn_ids]
    assert (
        turn_ids_of([whole, part], len(row) - 1).tolist()
        == [
            row.turn_ids[:-1],  # cut
            (row.turn_ids[row.prompt_length :] + [-1] * row.prompt_length)[:-1],
        ]
    )
    padded = turn_ids_of([part, ((), 0), whole], 12)
    assert padded.tolist() == [
        (ids + [-1] * 12)[:12] for ids in (row.turn_ids[row.prompt_length :], [], row.turn_ids)
    ]
    assert turn_ids_of([((), 0)], 2).tolist() == [[-1, -1]]
    assert turn_ids_of([], 2).shape == (0, 2)


@pytest.mark.parametrize(("turns", "dtype"), [(127, np.int8), (128, np.int16), (40_000, np.int32)])
def test_turn_ids_take_the_smallest_type(turns: int, dtype: type) -> None:
    ids = turn_ids_of([([(n, n + 1) for n in range(turns)], 0), ((), 0)], turns)
    assert ids.dtype == dtype
    assert ids.tolist() == [[*range(turns)], [-1] * turns]


@pytest.mark.parametrize(("reason", "finish"), [("stop", "stop"), ("length", "length"), ("abort", "length")])
def test_only_stop_is_a_response_that_ended(reason: str, finish: str) -> None:
    assert reported_finish(reason) == finish
    assert reported_finish(None) == "length"


@pytest.mark.parametrize(
    ("ids", "finish"), [([1, 2, 3], "length"), ([1, 2, 9], "stop"), ([1, 2], "stop"), ([], "stop")]
)
def test_the_last_token_distinguishes_a_cut_response_from_a_complete_one(ids: list[int], finish: str) -> None:
    assert inferred_finish(ids, 3, {9}) == finish
    assert inferred_finish([], 0, {9}) == "stop"
