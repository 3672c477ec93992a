from __future__ import annotations

import pytest

from gem_envs._games.wordle import Wordle
from gem_envs._games.words import dictionary, words


@pytest.mark.parametrize("length", range(3, 11))
def test_hidden_words_are_many_and_well_formed(length):
    common, rare = words("common", length), words("rare", length)
    assert len(common) > 250
    assert len(rare) > 200
    for word in (*common, *rare):
        assert len(word) == length
        assert word.isascii()
        assert word.isalpha()
        assert word.islower()
    assert not set(common) & set(rare)
    assert list(common) == sorted(set(common))


def test_the_dictionary_holds_all_grades():
    assert {"crane", "about"} <= dictionary(5)
    assert dictionary(5) == {
        *words("common", 5),
        *words("rare", 5),
        *words("other", 5),
        *words("never-hidden", 5),
    }
    assert sum(len(dictionary(length)) for length in range(3, 7)) > 20_000


def test_there_are_no_words_of_other_lengths():
    assert words("common", 2) == words("rare", 11) == words("other", 7) == ()


@pytest.mark.parametrize(
    "guess", ["dog", "cow", "god", "girl", "girls", "brown", "blow", "fat", "kill", "strip", "bang"]
)
def test_plain_words_on_a_list_of_offensive_words_may_be_guessed_but_are_never_hidden(guess):
    assert guess in dictionary(len(guess))
    assert guess not in words("common", len(guess)) + words("rare", len(guess))
    env = Wordle(word_length=len(guess))
    env.reset(seed=0)
    assert env.step(rf"\boxed{{{guess}}}")[4]["invalid"] is None
