"""Rows of tokens, and why a response ended."""

from __future__ import annotations

import json
from random import Random

import numpy as np
import pytest

from gem_core.errors import ConfigError, TraceError
from gem_core.images import image_part, text_part
from gem_core.rollout import Episode, Turn
from gem_core.rollout._policy import inferred_finish
from gem_core.rollout._rows import RowSplit, masked_row, turn_ids_of
from gem_core.rollout._turn import Prompts


def episode(*rewards: float, trainable: bool = True, mode: str = "append") -> Episode:
    turns = [
        Turn([10 + index, 11], [20 + index] * (index + 1), [-0.5] * (index + 1), reward, "o", "a", "stop")
        for index, reward in enumerate(rewards)
    ]
    return Episode("env", 3, turns, True, False, "terminated", trainable=trainable, context_mode=mode)  # type: ignore[arg-type]


def test_a_conversation_that_only_grows_is_one_row() -> None:
    (row,) = episode(0.25, 1.0).rows()
    assert row.token_ids == [10, 11, 20, 11, 11, 21, 21]
    assert row.turn_ids == [-1, -1, 0, -1, -1, 1, 1]
    assert row.response_mask == [0, 0, 1, 0, 0, 1, 1]
    assert row.logprobs == row.logprobs_or_zeros() == [0.0, 0.0, -0.5, 0.0, 0.0, -0.5, -0.5]
    assert row.rewards == [0.0, 0.0, 0.25, 0.0, 0.0, 0.0, 1.0]
    assert (row.prompt_ids, row.response_ids) == ([10, 11], [20, 11, 11, 21, 21])
    assert (row.spans, row.turns) == ([(2, 3), (5, 7)], (0, 1))


def test_one_row_per_turn() -> None:
    first, second = episode(0.25, 1.0).rows("turn")
    assert (first.prompt_ids, first.response_ids) == ([10, 11], [20])
    assert (second.prompt_ids, second.response_ids) == ([10, 11, 20, 11, 11], [21, 21])
    assert second.turn_ids == [-1] * 5 + [0, 0]
    assert second.rewards == [0.0] * 6 + [1.0]
    assert second.logprobs == [0.0] * 5 + [-0.5, -0.5]
    assert (first.spans, second.spans) == ([(2, 3)], [(5, 7)])
    assert (first.turns, second.turns) == ((0,), (1,))


def test_a_turn_that_continues_no_row_begins_one() -> None:
    rebuilt = episode(0.25, 1.0, mode="rebuild")
    rebuilt.turns[1].parent = None
    for split in ("auto", "turn"):
        assert [row.prompt_ids for row in rebuilt.rows(split)] == [[10, 11], [11, 11]]  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="split"):
        rebuilt.rows("episode")  # type: ignore[arg-type]


def test_a_trainer_of_one_row_per_episode_loses_none() -> None:
    assert episode(0.25, 1.0).only_row(0) == episode(0.25, 1.0).rows()[0]
    rebuilt = episode(0.25, 1.0, mode="rebuild")
    rebuilt.turns[1].parent = None
    with pytest.raises(ConfigError, match="has 2 rows, because its history was rewritten"):
        rebuilt.only_row(0)
    rebuilt.trainable = False
    assert rebuilt.only_row(7).token_ids == masked_row(7).token_ids


def test_rows_may_take_turns_and_share_a_beginning() -> None:
    """Turn 2 continues turn 0 after another conversation; turn 3 is a second answer to its prompt."""
    forked = episode(1.0, 2.0, 4.0, 8.0)
    forked.turns[1].parent, forked.turns[2].parent, forked.turns[3].parent = None, -2, -3
    main, side, again = forked.rows()
    assert [row.turns for row in (main, side, again)] == [(0, 2), (1,), (3,)]
    assert main.token_ids == [10, 11, 20, 12, 11, 22, 22, 22]
    assert main.turn_ids == [-1, -1, 0, -1, -1, 1, 1, 1]
    assert main.rewards == [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 4.0]
    assert (side.token_ids, side.turn_ids) == ([11, 11, 21, 21], [-1, -1, 0, 0])
    assert again.token_ids == [10, 11, 20, 13, 11, 23, 23, 23, 23]
    assert again.turn_ids == [-1] * 5 + [0] * 4  # turn 0 is context here
    assert (again.prompt_length, main.prompt_length) == (5, 2)


@pytest.mark.parametrize(("turn", "parent"), [(1, -2), (2, 0), (2, 1), (2, -3)])
def test_a_parent_is_an_earlier_turn(turn: int, parent: int) -> None:
    wrong = episode(0.0, 0.0, 0.0)
    wrong.turns[turn].parent = parent
    with pytest.raises(ConfigError, match=rf"turn {turn} has parent={parent}: expected None, .* {-turn} "):
        wrong.rows()
    with pytest.raises(TraceError, match=f"turn {turn} has parent={parent}"):
        Episode.from_dict(wrong.to_dict())


def test_a_prompt_may_add_no_token() -> None:
    (row,) = joined(([1], [5, 6]), ([1, 5, 6], [7]), ([1, 5, 6, 7, 2], [8])).rows()
    assert row.token_ids == [1, 5, 6, 7, 2, 8]
    assert row.turn_ids == [-1, 0, 0, 1, -1, 2]
    assert row.spans == [(1, 3), (3, 4), (5, 6)]
    assert row.has_adjacent_turns
    (apart,) = joined(([1], [5, 6]), ([1, 5, 6, 3], [7])).rows()
    assert not apart.has_adjacent_turns


def joined(*requests: tuple[list[int], list[int]], images: list[tuple[str, ...]] | None = None) -> Episode:
    """Return an episode whose turns are stored by `Prompts`."""
    prompts, turns = Prompts(), []
    for index, (prompt, response) in enumerate(requests):
        shown = images[index] if images else ()
        parent, context = prompts.add(prompt, response, shown)
        observation = [{"type": "image_url", "image_url": {"url": url}} for url in shown] or "o"
        logprobs = [-0.25] * len(response)
        turns.append(Turn(context, response, logprobs, 1.0, observation, "a", "stop", parent=parent))
    return Episode("env", 3, turns, True, False, "terminated", context_mode="rebuild")


@pytest.mark.parametrize("seed", range(60))
def test_rows_are_the_prompts_of_the_engine(seed: int) -> None:
    """Random requests: a prompt extends some earlier turn by 0 to 2 tokens, or is new."""
    random = Random(seed)
    requests: list[tuple[list[int], list[int]]] = []
    for _ in range(random.randrange(1, 14)):
        before = [*chosen[0], *chosen[1]] if requests and (chosen := random.choice(requests)) else []
        prompt = before if random.random() < 0.8 else before[: random.randrange(len(before) + 1)]
        prompt = prompt + random.choices(range(2), k=random.randrange(0 if prompt else 1, 3))
        requests.append((prompt, random.choices(range(2), k=random.randrange(1, 3))))
    played = joined(*requests)
    assert played.prompts() == [prompt for prompt, _ in requests]
    rows = played.rows()
    assert sorted(turn for row in rows for turn in row.turns) == list(range(len(requests)))
    for row in rows:
        for turn, (start, end) in zip(row.turns, row.spans, strict=True):
            assert (row.token_ids[:start], row.token_ids[start:end]) == requests[turn]
            assert row.rewards[end - 1] == 1.0
        assert len(row.token_ids) == len(row.turn_ids) == len(row.rewards) == row.spans[-1][1]
        assert row.logprobs == [-0.25 * on for on in row.response_mask]
    turns = played.rows("turn")
    assert [(row.prompt_ids, row.response_ids) for row in turns] == requests
    stored = sum(len(turn.context_ids) + len(turn.response_ids) for turn in played.turns)
    assert stored <= sum(map(len, rows))
    for row in rows:  # a row begins only where no row could go on
        assert not any(
            row.prompt_ids[: len(other)] == other.token_ids
            for other in rows
            if other is not row and other.turns[-1] < row.turns[0]
        )


def test_the_parent_is_the_longest_one_of_those_that_nothing_continues() -> None:
    prompts = Prompts()
    assert prompts.add([1], [2]) == (None, [1])
    assert prompts.add([1, 2], [3]) == (-1, [])
    assert prompts.add([1, 2], [3]) == (-2, [])  # the same answer once more
    assert prompts.add([1, 2, 3, 9], [4]) == (-1, [9])
    assert prompts.add([1, 2, 3, 8], [4]) == (-3, [8])  # turn 2 goes on already
    assert prompts.add([1, 2, 7], [4]) == (-5, [7])
    assert prompts.add([2, 2, 3], [4]) == (None, [2, 2, 3])


def test_other_images_begin_another_row() -> None:
    requests = ([1], [5]), ([1, 5, 1], [6]), ([1, 5, 1, 6], [7])
    same = joined(*requests, images=[("a",), ("a", "b"), ("a", "b")])
    (row,) = same.rows()
    assert row.images == ("a", "b")
    changed = joined(*requests, images=[("a",), ("c", "b"), ("c", "b")])
    first, second = changed.rows()
    assert (first.images, second.images, second.turns) == (("a",), ("c", "b"), (1, 2))
    fewer = joined(*requests, images=[("a",), (), ()])
    assert [row.images for row in fewer.rows()] == [("a",), ()]


def test_fifty_rebuilt_prompts_are_stored_once() -> None:
    """Thinking is dropped at every user message; the tool results between them are only added."""
    history: list[int] = []
    requests = []
    for query in range(5):
        history = [token for token in history if token != 9] + [1, query]
        for _ in range(10):
            requests.append((list(history), [9, 9, 2]))
            history += [9, 9, 2, 3]
    played = joined(*requests)
    assert [row.turns for row in played.rows()] == [tuple(range(10 * n, 10 * n + 10)) for n in range(5)]
    stored = sum(len(turn.context_ids) + len(turn.response_ids) for turn in played.turns)
    assert 7 * stored < sum(len(prompt) + len(response) for prompt, response in requests)
    assert Episode.from_dict(json.loads(json.dumps(played.to_dict()))) == played


@pytest.mark.parametrize("split", ["auto", "turn"])
def test_an_untrainable_episode_has_a_masked_row_or_none(split: RowSplit) -> None:
    failed = episode(0.25, 1.0, trainable=False)
    assert failed.rows(split) == []
    (row,) = failed.rows(split, pad_id=7)
    assert row == masked_row(7)
    assert (row.token_ids, row.response_mask, row.rewards) == ([7, 7], [0, 0], [0.0, 0.0])
    assert (row.prompt_ids, row.response_ids, row.spans, row.turns) == ([7], [7], [], ())


def test_log_probs_that_an_engine_did_not_report() -> None:
    partly = episode(0.0, 1.0)
    partly.turns[1].logprobs = None
    (row,) = partly.rows()
    assert (row.logprobs, row.logprobs_or_zeros()) == (None, [0.0] * 7)
    first, second = partly.rows("turn")
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
    rows = played.rows("turn")
    assert [row.images for row in rows] == [tuple(urls[name] for name in names) for names in kept]
    if mode == "append":
        assert played.rows()[0].images == tuple(urls.values())


def test_spans_give_the_turn_ids_back() -> None:
    (row,) = episode(0.25, 0.5, 1.0).rows()
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


@pytest.mark.parametrize(
    ("ids", "finish"), [([1, 2, 3], "length"), ([1, 2, 9], "stop"), ([1, 2], "stop"), ([], "stop")]
)
def test_the_last_token_distinguishes_a_cut_response_from_a_complete_one(ids: list[int], finish: str) -> None:
    assert inferred_finish(ids, 3, {9}) == finish
    assert inferred_finish([], 0, {9}) == "stop"
