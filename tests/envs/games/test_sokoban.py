from __future__ import annotations

from collections import deque
from random import Random

import pytest

import gem_core
from gem_core.errors import ConfigError
from gem_envs._games.grid import DIRECTIONS
from gem_envs._games.sokoban import Sokoban
from gem_envs._games.sokoban_room import _plain_room, make_room
from gem_envs._games.sokoban_solver import solve
from tests.envs.games.players import oracle_return, say

ROOM = """
######
#..o.#
#....#
#.#..#
#..o.#
######
"""


def start(boxes: list[int], player: int, turns: int = 20) -> Sokoban:
    env = Sokoban(dim_room=[6, 6], num_boxes=2, max_turns=turns)
    env.reset(seed=0)
    env.room, env.cols = ROOM.replace("\n", ""), 6
    env.boxes, env.player, env.way = boxes, player, []
    return env


def test_walk_and_push():
    env = start([15, 21], 13)
    observation, reward, *_, info = env.step(say("right"))
    assert (observation, reward, env.player) == ("You moved right.", 0.0, 14)
    observation, *_ = env.step(say("right"))
    assert (observation, env.player, env.boxes) == ("You pushed a box right.", 15, [16, 21])
    assert info["suffix"].splitlines()[2:4] == ["# . P B . #", "# . # B . #"]


@pytest.mark.parametrize(
    ("move", "why"),
    [
        ("down", "There is a wall below you."),
        ("right", "The box to your right cannot be pushed."),
        ("up", "The box above you cannot be pushed."),
    ],
)
def test_illegal_moves(move, why):
    env = start([15, 16, 8], 14)
    observation, reward, *_, info = env.step(say(move))
    assert (observation, reward, info["invalid"]) == (why, 0.0, "illegal")
    assert (env.player, env.boxes) == (14, [15, 16, 8])


def test_all_boxes_on_targets():
    env = start([9, 21], 15)
    assert env.room[9] == env.room[27] == "o"
    observation, reward, terminated, truncated, info = env.step(say("down"))
    assert (observation, reward, terminated, truncated) == ("Every box is on a target.", 1.0, True, False)
    assert "# . . X . #" in info["suffix"]


def test_limit_pays_the_boxes_on_targets():
    env = start([9, 20], 14, turns=1)
    assert env.step(say("left"))[1:4] == (0.5, False, True)


@pytest.mark.parametrize("text", ["", r"\boxed{}", r"\boxed{push}", "up"])
def test_format_errors(text):
    assert start([15, 21], 13).step(text)[1:4] == (-0.1, True, False)


@pytest.mark.parametrize(
    ("rows", "cols", "boxes", "turns"),
    [(6, 6, 2, 20), (8, 8, 4, 50), (5, 7, 3, 30), (6, 6, 4, 3), (12, 9, 6, 80)],
)
def test_rooms_can_be_solved_in_time(rows, cols, boxes, turns):
    env = Sokoban(dim_room=(rows, cols), num_boxes=boxes, max_turns=turns)
    rooms = set()
    for seed in range(60):
        env.reset(seed=seed)
        rooms.add((env.room, tuple(env.boxes)))
        assert env.room.count("o") == len(set(env.boxes)) == boxes
        assert env.progress() < 1
        assert env.player not in env.boxes
        assert env.room[env.player] != "#"
        edge = env.room[:cols] + env.room[-cols:] + env.room[::cols] + env.room[cols - 1 :: cols]
        assert set(edge) == {"#"}
        assert 0 < len(env.way) <= turns
        for move in list(reversed(env.way)):
            last = env.step(say(move))
            assert last[4]["invalid"] is None
            if last[2]:  # the path may pass through the solved room
                break
        assert last[1:4] == (1.0, True, False)
    assert len(rooms) == 60


@pytest.mark.parametrize(("rows", "cols", "boxes"), [(5, 5, 2), (5, 8, 4), (8, 8, 9), (20, 20, 81)])
@pytest.mark.parametrize("turns", [1, 5, 100])
def test_the_plain_room_always_works(rows, cols, boxes, turns):
    room = _plain_room(Random(1), rows, cols, boxes, turns)
    assert room.moved
    assert 0 < len(room.way) <= turns


def test_most_rooms_have_every_box_to_push():
    rooms = [make_room(Random(seed), 8, 8, 4, 50) for seed in range(50)]
    assert sum(room.moved == 4 for room in rooms) > 35


def fewest_moves(cells: str, boxes: tuple[int, ...], player: int, cols: int) -> int | None:
    """Return the length of a shortest solution, by breadth-first search over all moves."""
    steps = [down * cols + right for down, right in DIRECTIONS.values()]
    first = (player, frozenset(boxes))
    found = {first: 0}
    border = deque([first])
    while border:
        state = player, placed = border.popleft()
        if all(cells[box] == "o" for box in placed):
            return found[state]
        for step in steps:
            cell, beyond = player + step, player + 2 * step
            if cells[cell] == "#":
                continue
            after = placed
            if cell in placed:
                if cells[beyond] == "#" or beyond in placed:
                    continue
                after = placed - {cell} | {beyond}
            if (cell, after) not in found:
                found[cell, after] = found[state] + 1
                border.append((cell, after))
    return None


def test_the_solver_needs_the_fewest_moves():
    unsolvable = 0
    for seed in (*range(60), 288):  # in 288, the only way goes through a position that is reached twice
        room = make_room(Random(seed), 6, 6, 2, 30 if seed < 60 else 40)
        random = Random(seed)
        floor = [cell for cell, kind in enumerate(room.cells) if kind != "#"]
        *boxes, player = random.sample(floor, 3) if seed % 2 else (*room.boxes, room.player)
        way = solve(room.cells, tuple(boxes), player, 6, 100_000)
        needed = fewest_moves(room.cells, tuple(boxes), player, 6)
        assert (way and len(way)) == (needed or None)
        unsolvable += way is None
    assert 5 < unsolvable < 30


@pytest.mark.parametrize(("boxes", "text"), [(1, "1 box."), (2, "2 boxes.")])
def test_the_rules_count_the_boxes(boxes, text):
    observation, _ = Sokoban(dim_room=(6, 6), num_boxes=boxes, max_turns=30).reset(seed=0)
    assert f"with {text} Push every box" in observation


@pytest.mark.parametrize("variant", ["", "-easy", "-hard", "-random"])
def test_oracle_wins(variant):
    env = gem_core.make(f"game:Sokoban-v0{variant}")
    assert [oracle_return(env, seed) for seed in range(5)] == [1.0] * 5


def test_oracle_knows_no_move_in_a_lost_position():
    env = start([7, 21], 20)  # the first one is in a corner
    assert env.oracle_action() is None


def test_the_oracle_recovers_after_wrong_steps():
    won = 0
    for seed in range(10):
        env = gem_core.make("game:Sokoban-v0-easy", max_turns=60)
        env.reset(seed=seed)
        for _ in range(4):
            env.step(env.sample_random_action())
        while action := env.oracle_action():
            step = env.step(action)
            if step[2]:
                won += step[1] == 1.0
                break
        else:
            assert not env.way
    assert won > 2


@pytest.mark.parametrize(
    "kwargs",
    [
        {"dim_room": [4, 6]}, {"dim_room": [6]}, {"dim_room": "66"}, {"dim_room": None}, {"dim_room": 6},
        {"dim_room": [6, 6.0]}, {"num_boxes": 0}, {"num_boxes": 5}, {"max_turns": 0},
    ],
)  # fmt: skip
def test_impossible_arguments_are_rejected(kwargs):
    with pytest.raises(ConfigError):
        Sokoban(**kwargs)
