from __future__ import annotations

import pytest

import gem_core
from gem_core.errors import ConfigError
from gem_envs._games.guess_the_number import GuessTheNumber

VARIANTS = gem_core.list_envs("game:GuessTheNumber-*")


def start(number: int, **kwargs: int) -> GuessTheNumber:
    env = GuessTheNumber(**{"min_number": 1, "max_number": 10, "max_turns": 4, **kwargs})
    env.reset(seed=0)
    env.number = number
    return env


def test_ids():
    expected = [f"game:GuessTheNumber-v0{variant}" for variant in ("", "-easy", "-hard", "-random")]
    assert expected == VARIANTS


def test_right_number_earns_one_and_terminates():
    _, reward, terminated, truncated, info = start(7).step(r"so \boxed{7}")
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert info["success"] is True
    assert info["invalid"] is None
    assert info["parsed_action"] == "7"


def test_hints_and_reward_at_the_limit():
    env = start(7)
    assert env.step(r"\boxed{3}")[:4] == ("The number is higher than 3.", 0.0, False, False)
    assert env.step(r"\boxed{9}")[:4] == ("The number is lower than 9.", 0.0, False, False)
    env.step(r"\boxed{1}")
    _, reward, terminated, truncated, info = env.step(r"\boxed{5}")
    assert reward == pytest.approx(1 - 2 / 9)
    assert (terminated, truncated, info["success"]) == (False, True, False)


@pytest.mark.parametrize("last", [1, 0, 11])
def test_repeated_or_illegal_guess_earns_nothing_at_the_limit(last):
    env = start(7)
    for guess in (6, 8, 1):
        env.step(rf"\boxed{{{guess}}}")
    _, reward, terminated, truncated, _ = env.step(rf"\boxed{{{last}}}")
    assert (reward, terminated, truncated) == (0.0, False, True)


@pytest.mark.parametrize("guess", ["0", "-3", "11", "999999", "1" + "0" * 17, "9" * 30, "-" + "9" * 5000])
def test_out_of_range_is_illegal_and_uses_a_turn(guess):
    env = start(7)
    _, reward, terminated, truncated, info = env.step(rf"\boxed{{{guess}}}")
    assert (reward, terminated, truncated, info["invalid"]) == (0.0, False, False, "illegal")
    assert info["suffix"] == "Turns left: 3."


@pytest.mark.parametrize(
    "text", ["", "7", r"\boxed{}", r"\boxed{seven}", r"\boxed{7.1}", r"\boxed{7", "\\boxed{\u0667}"]
)
def test_unreadable_text_is_a_format_error(text):
    _, reward, terminated, truncated, info = start(7).step(text)
    assert (reward, terminated, truncated, info["invalid"]) == (-0.1, True, False, "format")
    assert info["success"] is False


@pytest.mark.parametrize("id", VARIANTS)
def test_oracle_always_wins(id):
    env = gem_core.make(id)
    for seed in range(200):
        env.reset(seed=seed)
        rewards, done = [], False
        while not done:
            _, reward, terminated, truncated, info = env.step(env.oracle_action())
            rewards.append(reward)
            done = terminated or truncated
        assert sum(rewards) == env.max_return
        assert info["success"]


def test_random_play_on_easy():
    env = gem_core.make("game:GuessTheNumber-v0-easy")
    wins = 0
    for seed in range(2000):
        env.reset(seed=seed)
        done = False
        while not done:
            _, _, terminated, truncated, info = env.step(env.sample_random_action())
            assert info["invalid"] is None
            done = terminated or truncated
        wins += info["success"]
    assert wins / 2000 == pytest.approx(1 - 0.9**4, abs=0.04)  # four draws out of ten: 0.344


def test_random_variant_draws_its_range():
    env = gem_core.make("game:GuessTheNumber-v0-random")
    drawn = set()
    for seed in range(200):
        env.reset(seed=seed)
        drawn.add((env.low, env.high))
        assert 1 <= env.low <= 10
        assert env.low + 5 <= env.high <= 50
    assert len(drawn) > 100


@pytest.mark.parametrize(
    "kwargs",
    [
        {"min_number": 5, "max_number": 5},
        {"min_number": 5, "max_number": 1},
        {"min_number": None},
        {"max_turns": 0},
        {"max_number": 2.5},
        {"max_number": True},
    ],
)
def test_impossible_arguments_are_rejected(kwargs):
    with pytest.raises(ConfigError):
        GuessTheNumber(**kwargs)
