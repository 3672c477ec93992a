from __future__ import annotations

from collections import Counter

import pytest

import gem_core
from gem_core.errors import ConfigError
from gem_envs._games.game_2048 import Game2048
from gem_envs._games.slide import moved
from tests.envs.games.players import oracle_return, say


def start(cells: list[int], target: int = 64, turns: int = 50) -> Game2048:
    env = Game2048(target_tile=target, max_turns=turns)
    env.reset(seed=0)
    env.cells = cells
    env.largest, env.doublings = max(cells), 4
    return env


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ([0, 2, 0, 2], [4, 0, 0, 0]),
        ([2, 2, 2, 2], [4, 4, 0, 0]),
        ([2, 2, 2, 0], [4, 2, 0, 0]),
        ([4, 2, 2, 0], [4, 4, 0, 0]),  # a merged tile does not merge again
        ([2, 4, 2, 4], [2, 4, 2, 4]),
        ([0, 0, 0, 0], [0, 0, 0, 0]),
        ([0, 8, 0, 0], [8, 0, 0, 0]),
    ],
)
def test_a_line_slides(line, after):
    pad = [0] * 12
    assert moved([*line, *pad], 4, "left") == [*after, *pad]
    assert moved([*pad, *line[::-1]], 4, "right") == [*pad, *after[::-1]]
    column = [cell for tile in line for cell in (tile, 0, 0, 0)]
    assert moved(column, 4, "up")[::4] == after
    assert moved(column[::-1], 4, "down")[3::4] == after[::-1]


def test_a_move_adds_a_tile():
    env = start([2, 2, *[0] * 14])
    observation, reward, *_ = env.step(say("left"))
    assert (observation, env.cells[0]) == ("The tiles moved left.", 4)
    assert reward == 0.25
    assert 16 - env.cells.count(0) == 2


def test_new_tiles_are_nine_times_out_of_ten_a_2():
    env = Game2048(board_size=10)
    env.reset(seed=0)
    tiles = Counter()
    for _ in range(3000):
        env.cells = [0] * 100
        env._add_tile()
        tiles.update(tile for tile in env.cells if tile)
    assert tiles[2] + tiles[4] == 3000
    assert 240 < tiles[4] < 360


def test_only_a_new_largest_tile_pays():
    env = start([2, 2, 0, 0, 8, *[0] * 11])
    assert env.step(say("left"))[1] == 0.0


def test_target_ends_the_game():
    env = start([32, 32, *[0] * 14])
    _, reward, terminated, truncated, info = env.step(say("right"))
    assert (reward, terminated, truncated, info["success"]) == (0.25, True, False, True)


def test_a_full_board_without_a_move_is_lost():
    env = start([2, 4, 8, 16, 4, 8, 16, 2, 8, 16, 2, 64, 0, 32, 64, 128], target=2048)
    observation, _, terminated, truncated, info = env.step(say("left"))
    assert (observation, terminated, truncated) == ("No move is left. You lost.", True, False)
    assert info["success"] is False


def test_a_move_that_changes_nothing_is_illegal():
    cells = [2, 4, *[0] * 14]
    env = start(list(cells))
    observation, reward, *_, info = env.step(say("left"))
    assert (observation, reward, info["invalid"]) == ("Nothing can move left.", 0.0, "illegal")
    assert env.cells == cells


@pytest.mark.parametrize("text", ["", r"\boxed{}", r"\boxed{2}", r"\boxed{left right}"])
def test_format_errors(text):
    assert start([2, 2, *[0] * 14]).step(text)[1:4] == (-0.1, True, False)


def test_rewards_sum_to_1_from_a_2_or_a_4_at_the_start():
    env = gem_core.make("game:Game2048-v0-random")
    starts = set()
    for seed in range(25):
        total = oracle_return(env, seed)
        starts.add(env.doublings)
        if env.largest == env.target:
            assert total == pytest.approx(1.0)
        else:
            assert total == pytest.approx(env.progress())
    assert len(starts) > 2


@pytest.mark.parametrize("variant", ["-easy", "-random"])
def test_the_player_mostly_makes_the_tile(variant):
    env = gem_core.make(f"game:Game2048-v0{variant}")
    assert sum(oracle_return(env, seed) > 0.999 for seed in range(12)) >= 10


def test_targets_out_of_reach_have_no_known_best_return():
    best = {id: gem_core.make(id).max_return for id in gem_core.list_envs("game:Game2048-v0*")}
    assert best == {
        "game:Game2048-v0": 1.0,
        "game:Game2048-v0-easy": 1.0,
        "game:Game2048-v0-extreme-hard": None,
        "game:Game2048-v0-hard": None,
        "game:Game2048-v0-random": 1.0,
    }


@pytest.mark.parametrize(
    "kwargs",
    [{"target_tile": 48}, {"target_tile": 4}, {"target_tile": None}, {"max_turns": 0}, {"board_size": 1}],
)
def test_impossible_arguments_are_rejected(kwargs):
    with pytest.raises(ConfigError):
        Game2048(**kwargs)
