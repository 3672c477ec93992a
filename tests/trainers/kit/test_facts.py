"""Facts about rows that travel next to them."""

from __future__ import annotations

import gc
import json

import pytest

torch = pytest.importorskip("torch")

from gem_core.errors import TraceError  # noqa: E402
from gem_core.rollout import Episode, Turn  # noqa: E402
from gem_core.rollout._metrics import without_tokens  # noqa: E402
from gem_core.trainers import pack_facts, unpack_facts  # noqa: E402
from gem_core.trainers._facts import batch_turn_ids, unpack_outlines  # noqa: E402


def episode(*contexts: list[int]) -> Episode:
    """Return an episode with one turn of two tokens after each context."""
    turns = [Turn(context, [7, 8], None, 1.0, "", "", "stop") for context in contexts]
    return Episode("test:Env", 1, turns, True, False, "terminated")


def test_facts_of_pads_and_other_loops() -> None:
    facts = unpack_facts([None] * 3, ["a", "b", "c"], [0] * 3, lambda: pytest.fail("not needed"))
    assert (facts.turn_ids, facts.episodes, facts.turns) == (None, None, None)
    assert unpack_outlines([None] * 3) == []


def test_only_adjacent_turns_need_turn_ids() -> None:
    apart, adjacent = episode([1, 2], [3]), episode([1, 2], [], [3])
    packed = [pack_facts(one, one.rows())[0] for one in (apart, adjacent)]
    assert ["spans" in row_facts for row_facts in packed] == [False, True]
    received = [None, *json.loads(json.dumps(packed))]
    mask = torch.tensor([[1, 0, 1, 0, 0, 0, 0], [1, 1, 0, 1, 1, 0, 0], [1, 1, 1, 1, 0, 1, 1]])
    facts = unpack_facts(received, ["a", "b", "c"], [0] * 3, lambda: mask)
    assert facts.turn_ids is not None
    assert facts.turn_ids.tolist() == [
        [0, -1, 1, -1, -1, -1, -1], [0, 0, -1, 1, 1, -1, -1], [0, 0, 1, 1, -1, 2, 2],
    ]  # fmt: skip
    assert unpack_outlines(received) == [without_tokens(apart), without_tokens(adjacent)]


def test_a_row_without_spans_may_have_more_turns_than_the_others() -> None:
    mask = torch.tensor([[1, 0] * 200, [1] * 400])
    ids = batch_turn_ids([None, ([(0, 2), (2, 400)], 0)], mask)
    assert ids[0, ::2].tolist() == [*range(200)]
    assert ids[1, :4].tolist() == [0, 0, 1, 1]


def test_outlines_are_read_without_garbage_collection() -> None:
    one = episode(*[[1]] * 50)
    facts = pack_facts(one, one.rows()) * 1000
    starts: list[object] = []

    def note(phase: str, info: object) -> None:
        starts.append(info)

    gc.collect()
    gc.callbacks.append(note)
    try:
        episodes = unpack_outlines(facts)
        during = len(starts)
    finally:
        gc.callbacks.remove(note)
    assert len(episodes) == 1000
    assert during <= 2  # one collection, when the collector is on again; without the pause there are five
    assert gc.isenabled()
    with pytest.raises(TraceError):
        unpack_outlines([{"turns": [0], "episode": {}}])
    assert gc.isenabled()


def test_turn_rows_are_joined_by_their_keys() -> None:
    first, second = episode([1], []), episode([1])
    packed = pack_facts(first, first.rows("turn")) + pack_facts(second, second.rows("turn"))
    received = [packed[1], packed[2], packed[0]]
    facts = unpack_facts(received, ["a", "b", "a"], [1, 0, 0], lambda: pytest.fail("not needed"))
    assert (facts.turn_ids, facts.episodes, facts.turns) == (None, [0, 1, 0], [[1], [0], [0]])
    assert [len(one.turns) for one in unpack_outlines(received)] == [1, 2]


def test_a_failed_episode_has_an_outline_but_no_turns() -> None:
    failed = Episode("test:Env", 1, [], False, True, "env_error", trainable=False)
    (row_facts,) = pack_facts(failed, failed.rows(pad_id=0))
    assert row_facts["episode"]["env_id"] == "test:Env"
    assert "spans" not in row_facts


def test_ids_of_turns_when_no_row_has_a_mask_of_its_own_turns() -> None:
    ids = batch_turn_ids([([(0, 1), (1, 3)], 0), ([(1, 2)], 0)], torch.tensor([[1, 1, 1], [0, 1, 0]]))
    assert ids.tolist() == [[0, 1, 1], [-1, 0, -1]]


def test_rows_of_an_episode_that_take_turns_and_rows_of_another_loop_beside_them() -> None:
    one = episode([1], [2], [3])
    one.turns[1].parent, one.turns[2].parent = None, -2  # turn 2 goes on where turn 0 ended
    rows = one.rows()
    assert [row.turns for row in rows] == [(0, 2), (1,)]
    received = [None, *json.loads(json.dumps(pack_facts(one, rows)))[::-1], None]
    mask = torch.tensor([[1, 0, 1], [0, 1, 1], [1, 0, 1], [1, 1, 0]])
    facts = unpack_facts(received, ["b", "a", "a", "b"], [1, 1, 0, 0], lambda: mask)
    assert facts.episodes == [0, 1, 1, 0]
    assert facts.turns == [[1, 2], [1], [0, 2], [0]]  # the other loop's second row follows its first one
    assert facts.turn_ids is None
