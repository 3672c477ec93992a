"""The second solver of Sudokus agrees with the labels, and rejects changed ones."""

from __future__ import annotations

import pytest

import gem_core
from gem_core.errors import CheckFailed
from gem_envs._games.sudoku import Sudoku
from gem_envs._games.sudoku_second_solver import ways_to_fill
from gem_lab import check_env


@pytest.mark.parametrize("variant", ["", "-easy", "-hard", "-random"])
def test_the_only_solution_is_the_label(variant):
    env = gem_core.make(f"game:Sudoku-v0{variant}").unwrapped
    for seed in range(30):
        env.reset(seed=seed)
        (found,) = ways_to_fill(env.board())
        side = env.scale
        assert found == {(c // side + 1, c % side + 1, n) for c, n in enumerate(env.solution)}


def test_the_second_opinion_on_moves():
    env = gem_core.make("game:Sudoku-v0-easy").unwrapped
    env.reset(seed=0)
    right = env.oracle_action()
    assert env.verify(right) is None  # others follow
    assert env.verify("no box") is None
    cell = env.cells.index(0)
    env.solution[cell] = env.solution[cell] % 4 + 1
    wrong = {env.verify(f"\\boxed{{{cell // 4 + 1} {cell % 4 + 1} {number}}}") for number in range(1, 5)}
    assert wrong == {None, False}
    assert env.verify(f"\\boxed{{{cell // 4 + 1} {cell % 4 + 1} {env.solution[cell]}}}") is False
    env.cells = [0] * 16  # every number can be right
    assert env.verify(right) is False


def test_the_last_move_of_the_oracle_is_right():
    env = gem_core.make("game:Sudoku-v0-easy").unwrapped
    env.reset(seed=1)
    while True:
        action, last = env.oracle_action(), env.cells.count(0) == 1
        assert env.verify(action) is (True if last else None)
        if env.step(action)[2]:
            break
    assert last


def test_planted_labels_are_caught_by_the_checker(monkeypatch):
    monkeypatch.setattr(Sudoku, "best_move", _next_to_right)
    with pytest.raises(CheckFailed, match=r"labels_are_right: [\s\S]*verify rejects the oracle's response"):
        check_env("game:Sudoku-v0-easy", rules=["labels_are_right"])


def _next_to_right(env):
    cell = env.cells.index(0)
    return f"{cell // 4 + 1} {cell % 4 + 1} {env.solution[cell] % 4 + 1}"
