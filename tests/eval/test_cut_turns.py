"""The warning about a default limit on tokens per turn that cuts too many responses."""

from __future__ import annotations

import pytest

from gem_core.rollout import Episode, Turn
from gem_lab._cut_turns import CutTurns


def episode(turns: int, cut: int = 0, *, length: int = 8, trainable: bool = True) -> Episode:
    """Return an episode with `turns` turns, of which `cut` end at the limit of 8 tokens."""
    rows = [
        Turn([1], [2] * length, None, 0.0, "", "", "length" if number < cut else "stop")
        for number in range(turns)
    ]
    return Episode("x", 0, rows, True, False, "terminated", trainable=trainable)


def test_more_than_one_turn_in_a_hundred_triggers_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    cut_turns = CutTurns(8, "gem.max_tokens_per_turn")
    for _ in range(5):
        cut_turns.add(episode(199), episode(1, 1))
        cut_turns.add(episode(100, 1))  # 1 % is not more than 1 %
    assert not caplog.records
    for _ in range(3):
        cut_turns.add(episode(60, 1), episode(60, 1))
    (record,) = caplog.records
    assert record.getMessage().startswith("2 of the last 120 turns were cut at 8 tokens")
    assert "raise gem.max_tokens_per_turn" in record.getMessage()


def test_episodes_that_come_one_by_one_are_counted_together(caplog: pytest.LogCaptureFixture) -> None:
    cut_turns = CutTurns(8, "max_new_tokens")
    for _ in range(49):
        cut_turns.add(episode(2, 1))
    assert not caplog.records
    cut_turns.add(episode(2, 1))
    assert caplog.records[0].getMessage().startswith("50 of the last 100 turns")


def test_in_messages_every_cut_answer_counts(caplog: pytest.LogCaptureFixture) -> None:
    spoken = episode(100, 2, length=0)
    spoken.context_mode = "messages"
    CutTurns(8, "max_tokens_per_turn").add(spoken)
    assert len(caplog.records) == 1


def test_other_limits_and_failed_episodes_do_not_count(caplog: pytest.LogCaptureFixture) -> None:
    cut_turns = CutTurns(8, "max_new_tokens")
    cut_turns.add(episode(200, 200, length=7))  # cut by the tokens of the whole episode
    cut_turns.add(episode(200, 200, trainable=False))
    cut_turns.add(episode(200))
    assert not caplog.records
