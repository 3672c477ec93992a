from __future__ import annotations

from itertools import islice, product

import pytest

import gem_core
from gem_core.errors import ConfigError
from gem_envs._games.sudoku import Sudoku, _puzzles
from gem_envs._games.sudoku_solver import peers, solutions
from tests.envs.games.players import oracle_return, say

SOLUTION = [1, 2, 3, 4, 3, 4, 1, 2, 2, 1, 4, 3, 4, 3, 2, 1]


def start(cells: str = "1.....1..1..4..1", turns: int = 15) -> Sudoku:
    env = Sudoku(clues=6, max_turns=turns, scale=4)
    env.reset(seed=0)
    env.cells = [0 if c == "." else int(c) for c in cells]
    env.solution, env.empty = SOLUTION, cells.count(".")
    return env


def test_a_correct_number():
    env = start()
    observation, reward, terminated, truncated, info = env.step(say("1 2 2"))
    assert (observation, reward) == ("2 is right at row 1, column 2.", pytest.approx(1 / 11))
    assert (terminated, truncated, info["invalid"]) == (False, False, None)
    assert info["suffix"] == (
        "    1 2   3 4\n 1  1 2 | . .\n 2  . . | 1 .\n    ----+----\n 3  . 1 | . .\n 4  4 . | . 1\n"
        "Turns left: 14."
    )


def test_a_wrong_number_is_a_legal_move():
    env = start()
    observation, reward, *_, info = env.step(say("1 2 3"))
    assert (observation, reward) == ("3 is wrong at row 1, column 2.", 0.0)
    assert (info["invalid"], env.cells[1]) == (None, 0)


@pytest.mark.parametrize(
    ("move", "why"),
    [
        ("1 1 2", "Row 1, column 1 holds 1 already."),
        ("1 2 1", "There is a 1 already in that row, column or box."),
        ("0 2 1", "Row, column and number are from 1 to 4."),
        ("1 5 1", "Row, column and number are from 1 to 4."),
        ("1 2 5", "Row, column and number are from 1 to 4."),
        ("1 2", "A move is a row, a column, and a number; you gave 2."),
    ],
)
def test_illegal_moves(move, why):
    env = start()
    observation, reward, *_, info = env.step(say(move))
    assert (observation, reward, info["invalid"]) == (why, 0.0, "illegal")


def test_the_last_number_wins():
    env = start("12343412214343.1")
    observation, reward, terminated, truncated, info = env.step(say("4, 3, 2"))
    assert (observation, reward, terminated, truncated) == ("The puzzle is solved.", 1.0, True, False)
    assert info["success"] is True


@pytest.mark.parametrize("text", ["", r"\boxed{}", r"\boxed{a 1 1}", "1 2 2", r"\boxed{1.5 1 1}"])
def test_format_errors(text):
    assert start().step(text)[1:4] == (-0.1, True, False)


def test_nothing_is_paid_at_the_limit():
    assert start(turns=1).step(say("1 2 3"))[1:4] == (0.0, False, True)


@pytest.mark.parametrize("scale", [4, 9])
def test_every_bundled_puzzle_has_one_solution_and_no_clue_too_many(scale):
    puzzles = _puzzles(scale)
    assert len(puzzles) == len(set(puzzles)) == (12 if scale == 4 else 200)
    for puzzle in puzzles if scale == 4 else puzzles[::40]:
        cells = [max(number, 0) for number in puzzle]
        assert list(islice(solutions(cells, scale), 2)) == [tuple(map(abs, puzzle))]
        for cell in [cell for cell, number in enumerate(cells) if number]:
            fewer = [*cells[:cell], 0, *cells[cell + 1 :]]
            assert len(list(islice(solutions(fewer, scale), 2))) == 2


@pytest.mark.parametrize(("clues", "scale"), [(6, 4), (31, 9), (24, 9), (80, 9)])
def test_puzzles_have_the_given_cells_and_one_solution(clues, scale):
    env = Sudoku(clues=clues, max_turns=50, scale=scale)
    solved = set()
    for seed in range(12):
        env.reset(seed=seed)
        assert len(env.cells) - env.cells.count(0) == clues
        assert list(islice(solutions(env.cells, scale), 2)) == [tuple(env.solution)]
        for cell, around in enumerate(peers(scale)):
            assert env.solution[cell] not in [env.solution[peer] for peer in around]
        solved.add(tuple(env.solution))
    assert len(solved) > 10


def test_the_solver_finds_all_solutions():
    """An empty 4x4 board has 288 solutions, as counted by trying all rows."""
    assert len(set(solutions([0] * 16, 4))) == 288
    assert list(solutions([1, 1, *[0] * 14], 4)) == []


def test_peers():
    for cell, around in enumerate(peers(9)):
        seen = {
            r * 9 + c
            for r, c in product(range(9), repeat=2)
            if (r == cell // 9 or c == cell % 9 or (r // 3, c // 3) == (cell // 27, cell % 9 // 3))
        }
        assert set(around) == seen - {cell}


@pytest.mark.parametrize("variant", ["", "-easy", "-hard", "-random"])
def test_oracle_wins(variant):
    env = gem_core.make(f"game:Sudoku-v0{variant}")
    assert [oracle_return(env, seed) for seed in range(4)] == pytest.approx([1.0] * 4)


@pytest.mark.parametrize(
    "kwargs",
    [
        {"scale": 6},
        {"scale": 9.0},
        {"scale": [9]},
        {"scale": None},
        {"clues": 23},
        {"clues": 81},
        {"clues": 3, "scale": 4},
        {"max_turns": 0},
    ],
)
def test_impossible_arguments_are_rejected(kwargs):
    with pytest.raises(ConfigError):
        Sudoku(**kwargs)
