from __future__ import annotations

import pytest

import gem_core
from gem_core.errors import ConfigError
from gem_envs._games.hangman import Hangman
from gem_envs._games.hangman_player import best_guess, fitting
from gem_envs._games.words import words
from tests.envs.games.players import oracle_return, say


def start(secret: str = "apple", turns: int = 20) -> Hangman:
    env = Hangman(word_length=len(secret), max_turns=turns)
    env.reset(seed=0)
    env.secret = secret
    return env


def test_golden_game():
    env = start()
    observation, reward, *_, info = env.step(say("P"))
    assert (observation, reward) == ("The letter p is in the word.", pytest.approx(0.2))
    assert info["suffix"] == "_ p p _ _\nTurns left: 19."
    assert env.step(say("x"))[:2] == ("The letter x is not in the word.", 0.0)
    assert env.step(say("maple"))[:2] == ("maple is not the word.", 0.0)
    observation, reward, terminated, truncated, info = env.step(say("apple"))
    assert (observation, terminated, truncated) == ("apple is the word.", True, False)
    assert reward == pytest.approx(0.3 + 0.5)
    assert (info["success"], info["suffix"]) == (True, "a p p l e")


def test_the_last_letter_wins():
    env = start()
    rewards = [env.step(say(letter))[1] for letter in "apl"]
    observation, reward, terminated, _, info = env.step(say("e"))
    assert (observation, terminated, info["success"]) == ("The word is apple.", True, True)
    assert sum(rewards) + reward == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("move", "why"),
    [
        ("p", "You guessed p before."),
        ("x", "You guessed x before."),
        ("maple", "You guessed maple before."),
        ("app", "The word has 5 letters; you gave 3."),
    ],
)
def test_illegal_moves(move, why):
    env = start()
    for earlier in ("p", "x", "maple"):
        env.step(say(earlier))
    observation, reward, *_, info = env.step(say(move))
    assert (observation, reward, info["invalid"]) == (why, 0.0, "illegal")


@pytest.mark.parametrize("text", ["", r"\boxed{}", r"\boxed{1}", r"\boxed{a-b}", "\\boxed{\u00e9}"])
def test_format_errors(text):
    assert start().step(text)[1:4] == (-0.1, True, False)


def test_nothing_more_is_paid_at_the_limit():
    assert start(turns=1).step(say("a"))[1:4] == (pytest.approx(0.1), False, True)


def test_words_that_fit():
    assert "apple" in fitting("common", "_pp__", "px", ())
    for word in fitting("common", "_pp__", "px", ()):
        assert word[1:3] == "pp"
        assert "p" not in word[0] + word[3:]
        assert "x" not in word
    assert "apple" not in fitting("common", "_pp__", "px", ("apple",))


def test_the_player_names_the_word_when_at_most_two_are_left():
    assert best_guess(["cat", "cut"], "c") == "cat"
    assert best_guess(["cat", "cut", "cot"], "ct") in "auo"


def test_hardcore_draws_rarer_words():
    env = Hangman(word_length=7, hardcore=True)
    for seed in range(20):
        env.reset(seed=seed)
        assert env.secret in words("rare", 7)


@pytest.mark.parametrize("variant", ["", "-hard"])
def test_oracle_wins(variant):
    env = gem_core.make(f"game:Hangman-v0{variant}")
    assert [oracle_return(env, seed) for seed in range(8)] == pytest.approx([1.0] * 8)


def test_oracle_mostly_wins_with_few_turns():
    env = gem_core.make("game:Hangman-v0-easy")
    returns = [oracle_return(env, seed) for seed in range(40)]
    assert sum(total > 0.999 for total in returns) > 24
    assert all(total < 1.0 + 1e-9 for total in returns)


@pytest.mark.parametrize(
    "kwargs", [{"word_length": 2}, {"word_length": 11}, {"word_length": None}, {"max_turns": 0}]
)
def test_impossible_arguments_are_rejected(kwargs):
    with pytest.raises(ConfigError):
        Hangman(**kwargs)
