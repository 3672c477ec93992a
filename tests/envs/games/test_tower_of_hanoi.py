from __future__ import annotations

from itertools import product

import pytest

import gem_core
from gem_core.errors import ConfigError
from gem_envs._games.tower_of_hanoi import TowerofHanoi


def start(disks: int = 3, turns: int = 10, pegs: list[list[int]] | None = None) -> TowerofHanoi:
    env = TowerofHanoi(num_disks=disks, max_turns=turns)
    env.reset(seed=0)
    env.target = 2
    env.pegs = [list(range(disks, 0, -1)), [], []] if pegs is None else pegs
    return env


def test_golden_game():
    env = start()
    for move in ("A C", "A B", "C B", "A C", "B A", "B C"):
        _, reward, terminated, truncated, info = env.step(rf"\boxed{{{move}}}")
        assert (reward, terminated, truncated, info["invalid"]) == (0.0, False, False, None)
    assert info["suffix"] == "A: 1\nB: -\nC: 3 2\nTurns left: 4."
    observation, reward, terminated, truncated, info = env.step(r"\boxed{A C}")
    assert (observation, reward, terminated, truncated) == ("All disks are on peg C.", 1.0, True, False)
    assert info["success"] is True
    assert info["metrics"] == {"progress": 1.0}


@pytest.mark.parametrize("move", ["A C", "A,C", "AC", "a c", "A->C", " A , C "])
def test_ways_to_write_a_move(move):
    env = start()
    assert env.step(rf"\boxed{{{move}}}")[0] == "Disk 1 moved from A to C."


@pytest.mark.parametrize(
    ("move", "why"),
    [
        ("B C", "Peg B is empty."),
        ("A A", "A move needs two different pegs."),
        ("A D", "The pegs are A, B and C."),
        ("X Y", "The pegs are A, B and C."),
    ],
)
def test_illegal_moves(move, why):
    env = start()
    *step, info = env.step(rf"\boxed{{{move}}}")
    assert step == [why, 0.0, False, False]
    assert info["invalid"] == "illegal"
    assert env.pegs == [[3, 2, 1], [], []]


def test_a_larger_disk_does_not_fit_on_a_smaller_one():
    env = start(pegs=[[3, 2], [], [1]])
    assert env.step(r"\boxed{A C}")[0] == "Disk 2 cannot lie on disk 1."
    assert env.pegs == [[3, 2], [], [1]]


@pytest.mark.parametrize(
    "text", ["", r"\boxed{A}", r"\boxed{A B C}", r"\boxed{1 2}", r"\boxed{}", "\\boxed{\u0391C}"]
)
def test_format_errors(text):
    assert start().step(text)[1:4] == (-0.1, True, False)


def test_limit_pays_the_fraction_on_c():
    env = start(turns=1, pegs=[[3], [1], [2]])
    _, reward, terminated, truncated, _ = env.step(r"\boxed{B C}")
    assert (reward, terminated, truncated) == (2 / 3, False, True)


def test_illegal_move_at_the_limit_earns_nothing():
    env = start(turns=1, pegs=[[3], [1], [2]])
    assert env.step(r"\boxed{C B}")[1:4] == (0.0, False, True)


def all_positions(disks: int):
    for where in product(range(3), repeat=disks):
        yield [[disk for disk in range(disks, 0, -1) if where[disk - 1] == peg] for peg in range(3)]


def distances(disks: int) -> dict[str, int]:
    """Return the distance of each position from the goal, by breadth-first search."""
    goal = [[], [], list(range(disks, 0, -1))]
    found, border = {str(goal): 0}, [goal]
    while border:
        reached = []
        for pegs in border:
            for i, j in product(range(3), repeat=2):
                if pegs[i] and (not pegs[j] or pegs[j][-1] > pegs[i][-1]):
                    new = [list(peg) for peg in pegs]
                    new[j].append(new[i].pop())
                    if str(new) not in found:
                        found[str(new)] = found[str(pegs)] + 1
                        reached.append(new)
        border = reached
    return found


def test_the_oracle_takes_a_shortest_path_from_every_position():
    away = distances(4)
    assert len(away) == 81
    for pegs in all_positions(4):
        if away[str(pegs)]:
            env = start(4, pegs=[list(peg) for peg in pegs])
            env.step(env.oracle_action())
            assert away[str(env.pegs)] == away[str(pegs)] - 1


@pytest.mark.parametrize(("variant", "disks"), [("", 4), ("-easy", 3), ("-hard", 5)])
def test_oracle_wins_in_at_most_two_to_the_n_minus_1_moves(variant, disks):
    env = gem_core.make(f"game:TowerofHanoi-v0{variant}")
    lengths = set()
    for seed in range(40):
        env.reset(seed=seed)
        rewards = [0.0]
        while env._running:
            rewards.append(env.step(env.oracle_action())[1])
        assert rewards == [0.0] * (len(rewards) - 1) + [1.0]
        lengths.add(len(rewards) - 1)
    assert 2 ** (disks - 1) <= min(lengths) < max(lengths) <= 2**disks - 1


def test_episodes_differ_in_start_and_target():
    env = gem_core.make("game:TowerofHanoi-v0-easy")
    starts = set()
    for seed in range(300):
        observation, _ = env.reset(seed=seed)
        assert f"all disks to peg {'ABC'[env.target]} in" in observation
        assert 3 not in env.pegs[env.target]
        starts.add((str(env.pegs), env.target))
    assert len(starts) > 45  # of 54


def test_a_fixed_sequence_of_moves_rarely_wins():
    """The solution of the tower on A, for each target, is the best such sequence known."""
    env = gem_core.make("game:TowerofHanoi-v0-easy")
    wins = 0
    for seed in range(200):
        env.reset(seed=seed)
        for move in ("A C", "A B", "C B", "A C", "B A", "B C", "A C"):
            *_, info = env.step(rf"\boxed{{{move}}}")
            if "success" in info:
                wins += info["success"]
                break
    assert wins < 25


def test_random_variant_draws_its_size():
    env = gem_core.make("game:TowerofHanoi-v0-random")
    drawn = set()
    for seed in range(50):
        env.reset(seed=seed)
        drawn.add((sum(map(len, env.pegs)), env.turn_limit))
    assert drawn == {(3, 10), (4, 20), (5, 35)}


@pytest.mark.parametrize(
    "kwargs", [{"num_disks": 0}, {"num_disks": None}, {"max_turns": 0}, {"num_disks": 2.5}]
)
def test_impossible_arguments_are_rejected(kwargs):
    with pytest.raises(ConfigError):
        TowerofHanoi(**kwargs)
