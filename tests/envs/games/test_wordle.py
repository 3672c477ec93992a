from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gem_core
from gem_core.errors import ConfigError
from gem_envs._games.wordle import Wordle
from gem_envs._games.wordle_player import best_guess, marks
from gem_envs._games.words import words
from tests.envs.games.players import oracle_return, say


def start(secret: str, turns: int = 20, **kwargs: bool) -> Wordle:
    env = Wordle(word_length=len(secret), max_turns=turns, **kwargs)
    env.reset(seed=0)
    env.secret = secret
    return env


@pytest.mark.parametrize(
    ("guess", "secret", "marked"),
    [
        ("crane", "crane", "GGGGG"),
        ("crane", "nacre", "YYYYG"),
        ("geese", "elope", "-Y--G"),  # the word has a second e, and one is in place
        ("allow", "llama", "YGY--"),
        ("eee", "bed", "-G-"),
        ("abc", "xyz", "---"),
    ],
)
def test_marks(guess, secret, marked):
    assert marks(guess, secret) == marked


letters = st.text("abc", min_size=5, max_size=5)


@given(letters, letters)
def test_marks_count_each_letter_as_often_as_it_occurs(guess, secret):
    marked = marks(guess, secret)
    for place, mark in enumerate(marked):
        assert (mark == "G") == (guess[place] == secret[place])
    for letter in "abc":
        told = sum(mark != "-" for mark, other in zip(marked, guess, strict=True) if other == letter)
        assert told == min(guess.count(letter), secret.count(letter))


def test_golden_game():
    env = start("crane")
    observation, reward, *_, info = env.step(say("trace"))
    assert (observation, info["invalid"]) == ("t r a c e\n- G G Y G", None)
    assert reward == pytest.approx(0.3)
    assert env.step(say("grape"))[1] == 0.0  # nothing new
    observation, reward, terminated, truncated, info = env.step(say("C R A N E"))
    assert (observation, terminated, truncated) == ("crane is the word.", True, False)
    assert reward == pytest.approx(0.7)
    assert info["success"] is True


@pytest.mark.parametrize(
    ("move", "why"),
    [
        ("cat", "The word has 5 letters; you gave 3."),
        ("trace", "You guessed trace before."),
        ("qqqqq", "qqqqq is not in the dictionary."),
    ],
)
def test_illegal_moves(move, why):
    env = start("crane")
    env.step(say("trace"))
    observation, reward, *_, info = env.step(say(move))
    assert (observation, reward, info["invalid"]) == (why, 0.0, "illegal")
    assert env.guesses == ["trace"]


def test_any_letters_count_without_only_real_words():
    observation, _, _, _, info = start("crane", only_real_words=False).step(say("qqqqe"))
    assert (observation, info["invalid"]) == ("q q q q e\n- - - - G", None)


@pytest.mark.parametrize("text", ["", r"\boxed{}", r"\boxed{12345}", r"\boxed{cr-ne}", "\\boxed{\u0441rane}"])
def test_format_errors(text):
    assert start("crane").step(text)[1:4] == (-0.1, True, False)


def test_nothing_is_paid_at_the_limit_but_new_places():
    assert start("crane", turns=1).step(say("grape"))[1:4] == (pytest.approx(0.3), False, True)


def test_every_guess_of_the_oracle_agrees_with_all_marks():
    for secret in words("common", 5)[::90]:
        history = ()
        while (guess := best_guess(5, history)) != secret:
            assert all(marks(earlier, guess) == marked for earlier, marked in history)
            history = (*history, (guess, marks(guess, secret)))
        assert len(history) < 8


@pytest.mark.parametrize(("length", "turns"), [(3, 12), (4, 9)])
def test_the_oracle_finds_every_short_word(length, turns):
    longest = 0
    for secret in words("common", length):
        history = ()
        while (guess := best_guess(length, history)) != secret:
            history = (*history, (guess, marks(guess, secret)))
        longest = max(longest, len(history) + 1)
    assert longest == turns


@pytest.mark.parametrize("variant", ["", "-easy", "-hard", "-random"])
def test_oracle_wins(variant):
    env = gem_core.make(f"game:Wordle-v0{variant}")
    assert [oracle_return(env, seed) for seed in range(10)] == pytest.approx([1.0] * 10)


def test_random_guesses_are_new_even_when_few_words_are_left():
    env = start(words("common", 3)[0], turns=300)
    env.guesses = list(words("common", 3)[1:])
    assert env.random_move(env.action_random) == env.secret


def test_random_variant_draws_its_size():
    env = gem_core.make("game:Wordle-v0-random")
    drawn = set()
    for seed in range(40):
        env.reset(seed=seed)
        drawn.add((len(env.secret), env.turn_limit))
    assert drawn == {(3, 15), (4, 20), (5, 25)}


@pytest.mark.parametrize(
    "kwargs", [{"word_length": 2}, {"word_length": 7}, {"word_length": None}, {"max_turns": 0}]
)
def test_impossible_arguments_are_rejected(kwargs):
    with pytest.raises(ConfigError):
        Wordle(**kwargs)
