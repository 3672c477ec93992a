"""The second solver of word searches agrees with the hidden words, and rejects other lines."""

from __future__ import annotations

import pytest

import gem_core
from gem_envs._games.word_search_second_solver import listed, spelled


@pytest.mark.parametrize("variant", ["", "-easy", "-random"])
def test_lines_of_the_oracle_are_right(variant):
    env = gem_core.make(f"game:WordSearch-v0{variant}").unwrapped
    verdicts = []
    for seed in range(30):
        env.reset(seed=seed)
        ended = False
        while not ended:
            action = env.oracle_action()
            verdicts.append(env.verify(action))
            ended = env.step(action)[2]
    assert verdicts.count(True) >= 10
    assert False not in verdicts


def test_planted_lines_are_rejected():
    env = gem_core.make("game:WordSearch-v0").unwrapped
    for seed in range(30):
        env.reset(seed=seed)
        row, col, last_row, last_col = env.places[0]
        env.places[0] = (
            [row, col, last_row, last_col - 1] if row == last_row else [row, col, last_row - 1, col]
        )
        assert env.verify(env.oracle_action()) is False
        assert env.verify("\\boxed{0 0 1 1}") is env.verify("\\boxed{0 0 0 99}") is False
        assert env.verify("\\boxed{0 0 0}") is False
        assert env.verify("no box") is None


def test_words_that_are_not_listed():
    env = gem_core.make("game:WordSearch-v0-hard").unwrapped
    env.reset(seed=0)
    assert env.verify(env.oracle_action()) is None


def test_reading():
    board = "   0 1 2\n0  a B c\n1  d e f\n2  g h i\nWords left: abc, beh."
    assert listed(board) == ["abc", "beh"]
    assert listed("0  a\nWords left: 3 letters, 5 letters.") is None
    lines = [(0, 0, 0, 2), (0, 2, 0, 0), (0, 1, 2, 1), (1, 1, 1, 1), (0, 0, 2, 2), (0, 0, 0, 3), (0, 3, 1, 3)]
    assert [spelled(board, line) for line in lines] == ["abc", "abc", "beh", "e", None, None, None]
