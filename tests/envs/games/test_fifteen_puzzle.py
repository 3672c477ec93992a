from __future__ import annotations

from collections import deque

import pytest

import gem_core
from gem_core.errors import ConfigError
from gem_envs._games.fifteen_puzzle import FifteenPuzzle
from gem_envs._games.fifteen_solver import goal, shortest_way, slides
from tests.envs.games.players import oracle_return, say


def start(tiles: list[int], turns: int = 10) -> FifteenPuzzle:
    env = FifteenPuzzle(num_rows=round(len(tiles) ** 0.5), max_turns=turns)
    env.reset(seed=0)
    env.tiles, env.solution = tiles, []
    return env


@pytest.mark.parametrize(
    ("move", "tiles", "tile"),
    [
        ("up", [1, 2, 3, 4, 8, 5, 7, 0, 6], 8),
        ("down", [1, 0, 3, 4, 2, 5, 7, 8, 6], 2),
        ("left", [1, 2, 3, 4, 5, 0, 7, 8, 6], 5),
        ("Right", [1, 2, 3, 0, 4, 5, 7, 8, 6], 4),
    ],
)
def test_a_tile_moves_into_the_blank(move, tiles, tile):
    env = start([1, 2, 3, 4, 0, 5, 7, 8, 6])
    observation, reward, *_ = env.step(say(move))
    assert (observation, reward) == (f"Tile {tile} moved {move.lower()}.", 0.0)
    assert env.tiles == tiles


@pytest.mark.parametrize(("blank", "moves"), [(0, ["down", "right"]), (8, ["up", "left"])])
def test_a_move_without_a_tile_is_illegal(blank, moves):
    for move in moves:
        tiles = list(range(1, 9))
        tiles.insert(blank, 0)
        env = start(tiles)
        observation, reward, _, _, info = env.step(say(move))
        assert (observation, reward) == (f"There is no tile that can move {move}.", 0.0)
        assert (info["invalid"], env.tiles) == ("illegal", tiles)


def test_solved():
    env = start([1, 2, 3, 4, 5, 6, 7, 0, 8])
    observation, reward, terminated, truncated, info = env.step(say("left"))
    assert (observation, reward, terminated, truncated) == ("All tiles are in order.", 1.0, True, False)
    assert info["suffix"] == " 1  2  3\n 4  5  6\n 7  8  _"


def test_limit_pays_the_fraction_of_cells_that_are_right():
    env = start([1, 2, 3, 4, 0, 5, 7, 8, 6], turns=1)
    assert env.step(say("up"))[1:4] == (pytest.approx(5 / 9), False, True)


def test_illegal_move_at_the_limit_earns_nothing():
    assert start([0, 1, 2, 3], turns=1).step(say("down"))[1:4] == (0.0, False, True)


@pytest.mark.parametrize("text", ["", r"\boxed{}", r"\boxed{north}", r"\boxed{up down}", "up"])
def test_format_errors(text):
    assert start([1, 2, 0, 3]).step(text)[1:4] == (-0.1, True, False)


@pytest.mark.parametrize("rows", [2, 3, 4])
def test_every_board_is_unsolved_and_can_be_solved_in_time(rows):
    env = FifteenPuzzle(num_rows=rows, max_turns=12)
    drawn = set()
    for seed in range(200):
        env.reset(seed=seed)
        drawn.add(tuple(env.tiles))
        assert tuple(env.tiles) != goal(rows)
        assert len(env.solution) <= 12
        for move in list(reversed(env.solution)):
            last = env.step(say(move))
        assert last[1:4] == (1.0, True, False)
    assert len(drawn) > (8 if rows == 2 else 100)


def test_the_known_solution_stays_valid_after_any_move():
    env = FifteenPuzzle(num_rows=3, max_turns=200)
    env.reset(seed=1)
    for _ in range(50):
        if env.step(env.sample_random_action())[2]:
            return
        copy = env.spawn(same_state=True)
        rewards = [copy.step(say(move))[1] for move in list(reversed(copy.solution))]
        assert sum(rewards) == 1.0


def distances(rows: int, deepest: int) -> dict[tuple[int, ...], int]:
    """Return the distance of positions from the goal, by breadth-first search."""
    found = {goal(rows): 0}
    border = deque(found)
    while border:
        tiles = border.popleft()
        if found[tiles] == deepest:
            break
        blank = tiles.index(0)
        for _, source in slides(rows)[blank]:
            cells = list(tiles)
            cells[blank], cells[source] = cells[source], 0
            if tuple(cells) not in found:
                found[tuple(cells)] = found[tiles] + 1
                border.append(tuple(cells))
    return found


@pytest.mark.parametrize(("rows", "deepest"), [(2, 6), (3, 14), (4, 8)])
def test_the_search_finds_shortest_paths(rows, deepest):
    away = distances(rows, deepest)
    sample = list(away.items())[:: max(1, len(away) // 300)]
    assert max(depth for _, depth in sample) >= deepest - 1
    for tiles, depth in sample:
        way = shortest_way(tiles, rows, 5000)
        assert way is not None
        assert len(way) == depth


def test_the_search_gives_up():
    assert shortest_way((1, 2, 3, 4, 5, 6, 8, 7, 0), 3, 1000) is None  # unsolvable


@pytest.mark.parametrize("variant", ["", "-easy", "-hard", "-random"])
def test_oracle_wins(variant):
    env = gem_core.make(f"game:FifteenPuzzle-v0{variant}")
    assert [oracle_return(env, seed) for seed in range(8)] == [1.0] * 8


def test_oracle_of_a_large_board_undoes_the_slides():
    env = FifteenPuzzle(num_rows=6, max_turns=60)
    assert oracle_return(env, 0) == 1.0


@pytest.mark.parametrize(
    "kwargs", [{"num_rows": 1}, {"num_rows": None}, {"max_turns": 0}, {"num_rows": 11}, {"num_rows": 2.0}]
)
def test_impossible_arguments_are_rejected(kwargs):
    with pytest.raises(ConfigError):
        FifteenPuzzle(**kwargs)
