from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gem_core
from gem_core.errors import ConfigError
from gem_envs._games.mastermind import Mastermind, pegs


def start(code: list[int], **kwargs) -> Mastermind:
    env = Mastermind(code_length=len(code), **kwargs)
    env.reset(seed=0)
    env.code = code
    return env


@pytest.mark.parametrize(
    ("guess", "code", "answer"),
    [
        ([1, 2, 3, 4], [1, 2, 3, 4], (4, 0)),
        ([1, 2, 3, 4], [4, 3, 2, 1], (0, 4)),
        ([1, 2, 3, 4], [1, 3, 5, 6], (1, 1)),
        ([1, 1, 2, 2], [1, 2, 1, 1], (1, 2)),
        ([1, 1, 1, 1], [1, 2, 3, 4], (1, 0)),
        ([5, 6], [1, 2], (0, 0)),
    ],
)
def test_pegs(guess, code, answer):
    assert pegs(guess, code) == answer


codes = st.lists(st.integers(1, 5), min_size=4, max_size=4)


@given(codes, codes)
def test_pegs_are_symmetric_and_bounded(first, second):
    black, white = pegs(first, second)
    assert pegs(second, first) == (black, white)
    assert 0 <= black <= black + white <= 4
    assert (black == 4) == (first == second)


def test_golden_game_pays_for_each_new_best():
    env = start([3, 1, 4, 2])
    guesses = ("3 2 1 6", "3 1 2 6", "1 3 2 4", "3,1,4,6", "3 1 4 2")
    played = [env.step(rf"\boxed{{{guess}}}") for guess in guesses]
    assert [step[0] for step in played] == [
        "In place: 1. Elsewhere: 2.",
        "In place: 2. Elsewhere: 1.",
        "In place: 0. Elsewhere: 4.",
        "In place: 3. Elsewhere: 0.",
        "That is the code.",
    ]
    assert [step[1] for step in played] == [0.25, 0.25, 0.0, 0.25, 0.25]
    assert [step[2] for step in played] == [False] * 4 + [True]
    assert played[-1][4]["success"] is True


@pytest.mark.parametrize("guess", ["1 2 3", "1 2 3 4 5", "0 1 2 3", "1 2 3 7", "1 1 2 3", "-1 2 3 4", "1234"])
def test_illegal_guesses(guess):
    _, reward, terminated, truncated, info = start([3, 1, 4, 2]).step(rf"\boxed{{{guess}}}")
    assert (reward, terminated, truncated, info["invalid"]) == (0.0, False, False, "illegal")


@pytest.mark.parametrize("text", ["1 2 3 4", r"\boxed{}", r"\boxed{a b c d}", r"\boxed{1 2 3 x}"])
def test_format_errors(text):
    assert start([3, 1, 4, 2]).step(text)[1:4] == (-0.1, True, False)


def test_limit_truncates_and_pays_for_the_guess_alone():
    env = start([3, 1, 4, 2], max_turns=2)
    env.step(r"\boxed{3 5 6 1}")
    _, reward, terminated, truncated, info = env.step(r"\boxed{3 1 6 5}")
    assert (reward, terminated, truncated) == (0.25, False, True)
    assert info["metrics"] == {"progress": 0.5}


def test_duplicates_on_request():
    env = start([1, 1, 2], num_numbers=3, duplicate_numbers=True)
    assert env.step(r"\boxed{1 2 2}")[0] == "In place: 2. Elsewhere: 0."
    assert env.step(env.oracle_action())[4]["invalid"] is None
    drawn = set()
    for seed in range(100):
        env.reset(seed=seed)
        drawn.add(tuple(env.code))
    assert any(len(set(code)) < 3 for code in drawn)


@pytest.mark.parametrize(("length", "numbers", "turns"), [(2, 6, 5), (4, 6, 6)])
def test_the_oracle_needs_few_turns_for_every_code(length, numbers, turns):
    env = Mastermind(code_length=length, num_numbers=numbers, max_turns=20)
    most = 0
    for code in permutations(range(1, numbers + 1), length):
        env.reset(seed=0)
        env.code = list(code)
        total, done = 0.0, False
        while not done:
            _, reward, done, truncated, _ = env.step(env.oracle_action())
            assert not truncated
            total += reward
        assert total == pytest.approx(env.max_return)
        most = max(most, env.turn)
    assert most == turns


@pytest.mark.parametrize("variant", ["-hard", "-random"])
def test_oracle_wins(variant):
    env = gem_core.make(f"game:Mastermind-v0{variant}")
    for seed in range(40):
        env.reset(seed=seed)
        done = False
        while not done:
            _, _, done, truncated, info = env.step(env.oracle_action())
            assert not truncated
        assert info["success"]


def test_the_oracle_continues_from_another_players_guesses():
    env = start([5, 2, 6, 1], num_numbers=8)
    for _ in range(5):
        env.step(env.sample_random_action())
    done = False
    while not done:
        done = env.step(env.oracle_action())[2]
    assert env.turn <= 5 + 8


def test_oracle_gives_up_on_too_many_codes():
    env = start([1, 2, 3, 4, 5, 6, 7], num_numbers=20)
    assert env.oracle_action() is None


def test_random_variant_draws_its_size():
    env = gem_core.make("game:Mastermind-v0-random")
    drawn = set()
    for seed in range(50):
        env.reset(seed=seed)
        assert len(set(env.code)) == len(env.code)
        drawn.add((len(env.code), env.num_numbers, env.turn_limit))
    assert drawn == {(2, 4, 10), (4, 6, 20), (4, 8, 30)}


@pytest.mark.parametrize(
    "kwargs",
    [
        {"code_length": 7},
        {"code_length": 0},
        {"code_length": None},
        {"num_numbers": 1},
        {"max_turns": 0},
        {"max_turns": None},
    ],
)
def test_impossible_arguments_are_rejected(kwargs):
    with pytest.raises(ConfigError):
        Mastermind(**kwargs)


def test_many_numbers_are_possible_with_duplicates():
    Mastermind(code_length=7, duplicate_numbers=True).reset(seed=0)
