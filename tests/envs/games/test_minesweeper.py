from __future__ import annotations

import pytest

import gem_core
from gem_core.errors import ConfigError
from gem_envs._games.minesweeper import Minesweeper


def start(mines: list[int], rows: int = 4, cols: int = 4, turns: int = 20) -> Minesweeper:
    """Return a board with mines already placed at these cells, counted row by row."""
    env = Minesweeper(rows=rows, cols=cols, num_mines=len(mines), max_turns=turns)
    env.reset(seed=0)
    env.mines = mines
    return env


def reveal(env: Minesweeper, row: int, col: int):
    return env.step(rf"\boxed{{reveal {row} {col}}}")


def flag(env: Minesweeper, row: int, col: int):
    return env.step(rf"\boxed{{flag {row} {col}}}")


def test_golden_game_ends_when_all_safe_cells_are_revealed():
    env = start([0, 5])
    observation, reward, terminated, truncated, info = reveal(env, 3, 3)
    assert (observation, reward, terminated, truncated) == ("Revealed 12 cells.", 12 / 14, False, False)
    assert info["suffix"] == (
        "    0  1  2  3\n 0  .  .  1  0\n 1  .  .  1  0\n 2  1  1  1  0\n 3  0  0  0  0\nTurns left: 19."
    )
    assert reveal(env, 0, 1)[:2] == ("Revealed 1 cell.", 1 / 14)
    assert reveal(env, 1, 0)[1:4] == (1 / 14, True, False)


def test_golden_game_ends_with_success():
    env = start([0])
    _, reward, terminated, truncated, info = reveal(env, 3, 3)
    assert (reward, terminated, truncated, info["success"]) == (1.0, True, False, True)
    assert info["metrics"] == {"progress": 1.0}
    assert info["suffix"].startswith("    0  1  2  3\n 0  .  1  0  0\n")


def test_revealing_a_mine_loses():
    env = start([0, 5])
    reveal(env, 3, 3)
    _, reward, terminated, truncated, info = reveal(env, 0, 0)
    assert (reward, terminated, truncated, info["success"]) == (0.0, True, False, False)
    assert info["metrics"] == {"progress": 12 / 14}
    assert " 0  *  .  1  0" in info["suffix"]


def test_revealing_a_flagged_mine_is_illegal_and_does_not_lose():
    env = start([0, 5])
    reveal(env, 3, 3)
    assert flag(env, 0, 0)[:2] == ("Cell 0 0 is flagged.", 0.0)
    _, reward, terminated, truncated, info = reveal(env, 0, 0)
    assert (reward, terminated, truncated, info["invalid"]) == (0.0, False, False, "illegal")
    assert flag(env, 0, 0)[0] == "Cell 0 0 is not flagged any more."
    assert reveal(env, 0, 0)[2]


def test_the_flood_fill_skips_flagged_cells():
    env = start([0])
    flag(env, 2, 2)
    _, reward, terminated, _, _ = reveal(env, 3, 3)
    assert (reward, terminated) == (14 / 15, False)
    flag(env, 2, 2)
    _, reward, terminated, _, info = reveal(env, 2, 2)
    assert (reward, terminated, info["success"]) == (1 / 15, True, True)


@pytest.mark.parametrize("move", ["reveal 3 3", "flag 3 3", "reveal 4 0", "reveal 0 -1", "flag 0 99"])
def test_illegal_moves(move):
    env = start([0, 5])
    reveal(env, 3, 3)
    before = list(env.cells)
    _, reward, terminated, truncated, info = env.step(rf"\boxed{{{move}}}")
    assert (reward, terminated, truncated, info["invalid"]) == (0.0, False, False, "illegal")
    assert env.cells == before


@pytest.mark.parametrize(
    "move", ["reveal", "reveal 1", "reveal 1 2 3", "open 1 2", "reveal a b", "1 2", "", "flag 1 x"]
)
def test_format_errors(move):
    assert start([0, 5]).step(rf"\boxed{{{move}}}")[1:4] == (-0.1, True, False)


@pytest.mark.parametrize("move", ["reveal 3 3", "Reveal 3,3", "REVEAL  3, 3", "reveal\t3 3"])
def test_ways_to_write_a_move(move):
    assert start([0, 5]).step(rf"\boxed{{{move}}}")[0] == "Revealed 12 cells."


def test_limit_truncates_and_pays_for_the_move_alone():
    _, reward, terminated, truncated, info = reveal(start([0, 5], turns=1), 3, 3)
    assert (reward, terminated, truncated, info["success"]) == (12 / 14, False, True, False)


def test_the_first_reveal_and_the_cells_around_it_are_safe():
    env = Minesweeper(rows=5, cols=5, num_mines=16, max_turns=25)
    for seed in range(50):
        env.reset(seed=seed)
        _, reward, terminated, _, info = reveal(env, 2, 2)
        assert reward == 1.0  # all other cells are mines
        assert terminated
        assert info["success"]


def test_a_flag_before_the_first_reveal_places_no_mines():
    env = Minesweeper()
    env.reset(seed=0)
    flag(env, 0, 0)
    assert env.mines == []
    reveal(env, 4, 4)
    assert len(set(env.mines)) == 10


def test_mines_depend_on_the_seed():
    env = Minesweeper()

    def mines(seed: int) -> tuple[int, ...]:
        env.reset(seed=seed)
        reveal(env, 4, 4)
        return tuple(env.mines)

    assert mines(3) == mines(3)
    assert len({mines(seed) for seed in range(20)}) == 20


@pytest.mark.parametrize("variant", ["", "-easy", "-hard", "-random"])
def test_oracle_solves_most_boards(variant):
    env = gem_core.make(f"game:Minesweeper-v0{variant}")
    solved = 0
    for seed in range(30):
        env.reset(seed=seed)
        total, done = 0.0, False
        while not done:
            _, reward, done, truncated, info = env.step(env.oracle_action())
            assert info["invalid"] is None
            assert not truncated
            total += reward
        solved += info["success"]
        assert info["success"] == (total == pytest.approx(env.max_return))
    assert solved >= 18  # 0.80 to 0.90 over many seeds


def test_oracle_removes_a_flag_in_its_way():
    env = start([0])
    for row in range(4):
        for col in range(4):
            if (row, col) != (0, 0):
                flag(env, row, col)
    env.cells[15] = "0"
    env.cells[0] = "F"
    assert env.oracle_action().startswith(r"\boxed{flag ")
    assert env.sample_random_action().startswith(r"\boxed{flag ")


def test_random_variant_draws_its_size():
    env = gem_core.make("game:Minesweeper-v0-random")
    drawn = set()
    for seed in range(60):
        env.reset(seed=seed)
        drawn.add((env.rows, env.cols, env.num_mines, env.turn_limit))
    assert drawn == {(5, 5, 5, 25), (6, 6, 7, 36), (7, 7, 9, 49), (8, 8, 12, 64)}


@pytest.mark.parametrize(
    "kwargs",
    [
        {"rows": 5, "cols": 5, "num_mines": 17},
        {"rows": 3, "cols": 3, "num_mines": 1},
        {"num_mines": 0},
        {"rows": 0},
        {"rows": 1000},
        {"cols": None},
        {"max_turns": 0},
    ],
)
def test_impossible_arguments_are_rejected(kwargs):
    with pytest.raises(ConfigError):
        Minesweeper(**kwargs)
