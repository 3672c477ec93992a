from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import gem_core
from gem_core.errors import ConfigError
from gem_envs._games.crossword_maker import Placed, place_words
from gem_envs._games.crosswords import Crosswords, _clues
from tests.envs.games.players import oracle_return, say


def start(turns: int = 30) -> Crosswords:
    """Return a grid with CAT across in the first row, and TEA down from its last letter."""
    env = Crosswords(num_words=2, max_turns=turns)
    env.reset(seed=0)
    env.cols, env.cells = 3, "cat..e..a"
    env.shown = list("___.._.._")
    return env


def test_a_correct_letter():
    env = start()
    observation, reward, terminated, truncated, info = env.step(say("0 2 T"))
    assert (observation, reward) == ("t is right at 0 2.", pytest.approx(0.2))
    assert (terminated, truncated, info["invalid"]) == (False, False, None)
    assert info["suffix"] == "   0 1 2\n0  _ _ t\n1  . . _\n2  . . _\nTurns left: 29."


def test_a_wrong_letter_is_a_legal_move():
    env = start()
    observation, reward, *_, info = env.step(say("0 0 x"))
    assert (observation, reward, info["invalid"]) == ("x is wrong at 0 0.", 0.0, None)
    assert env.shown[0] == "_"


@pytest.mark.parametrize(
    ("move", "why"),
    [
        ("0 1 c", "Cell 0 1 holds a already."),
        ("1 1 c", "Cell 1 1 belongs to no word."),
        ("3 0 c", "There is no cell 3 0."),
        ("0 3 c", "There is no cell 0 3."),
        ("-1 0 c", "There is no cell -1 0."),
    ],
)
def test_illegal_moves(move, why):
    env = start()
    env.step(say("0 1 a"))
    observation, reward, *_, info = env.step(say(move))
    assert (observation, reward, info["invalid"]) == (why, 0.0, "illegal")


def test_solved():
    env = start()
    rewards = [env.step(say(move))[1] for move in ("0 0 c", "0 1 a", "0,2,t", "1 2 e")]
    observation, reward, terminated, truncated, info = env.step(say("2 2 a"))
    assert (observation, terminated, truncated) == ("The crossword is solved.", True, False)
    assert sum(rewards) + reward == pytest.approx(1.0)
    assert info["success"] is True


@pytest.mark.parametrize(
    "text", ["", r"\boxed{}", r"\boxed{0 0}", r"\boxed{0 0 1}", r"\boxed{0 0 ab}", "0 0 a"]
)
def test_format_errors(text):
    assert start().step(text)[1:4] == (-0.1, True, False)


def test_nothing_is_paid_at_the_limit():
    assert start(turns=8).turn_limit == 8
    env = Crosswords(num_words=1, max_turns=4)
    env.reset(seed=0)
    for _ in range(4):
        wrong = "q" if env.cells[0] != "q" else "z"
        step = env.step(say(f"0 0 {wrong}"))
    assert step[1:4] == (0.0, False, True)


def test_the_clues():
    for level, enough in (("plain", 300), ("hard", 200)):
        clues = _clues(level)
        assert len(clues) >= enough
        assert len(set(clues.values())) == len(clues)
        assert sum(len(answer) <= 4 for answer in clues) >= 60  # `place_words` may need them
        for answer, clue in clues.items():
            assert answer.isascii()
            assert answer.isalpha()
            assert answer.islower()
            assert 3 <= len(answer) <= 8
            assert answer not in clue.lower().replace(",", " ").split()
            assert len(clue) > 3


def letters_of(layout: list[Placed]) -> dict[tuple[int, int], str]:
    letters: dict[tuple[int, int], str] = {}
    for placed in layout:
        for cell, letter in zip(placed.cells(), placed.word, strict=True):
            assert letters.setdefault(cell, letter) == letter
    return letters


def runs(letters: dict[tuple[int, int], str]) -> list[str]:
    """Return all words of two or more letters in the grid."""
    found = []
    for down, right in ((0, 1), (1, 0)):
        for row, col in letters:
            if (row - down, col - right) not in letters:
                text = ""
                while (row, col) in letters:
                    text += letters[row, col]
                    row, col = row + down, col + right
                if len(text) > 1:
                    found.append(text)
    return found


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), num_words=st.integers(1, 8), slack=st.integers(0, 40))
@example(seed=319839, num_words=5, slack=0)  # regression: a word covered a shorter one
def test_layouts_show_their_words_and_no_others(seed, num_words, slack):
    words = list(_clues("hard"))
    most = 4 * num_words + slack
    layout = place_words(Random(seed), words, num_words, most)
    letters = letters_of(layout)
    assert sorted(runs(letters)) == sorted(placed.word for placed in layout)
    assert len({placed.word for placed in layout}) == num_words
    assert len(letters) <= most
    assert min(row for row, _ in letters) == min(col for _, col in letters) == 0


def test_words_that_cannot_cross_are_put_below():
    layout = place_words(Random(0), ["abc", "def", "ghi"], 3, 30)
    assert len(layout) == 3
    assert sorted(runs(letters_of(layout))) == ["abc", "def", "ghi"]


def test_most_words_cross():
    layouts = [place_words(Random(seed), list(_clues("plain")), 5, 100) for seed in range(30)]
    assert (
        sum(len(letters_of(layout)) < sum(len(placed.word) for placed in layout) for layout in layouts) == 30
    )


@pytest.mark.parametrize("variant", ["", "-easy", "-hard", "-random"])
def test_oracle_wins(variant):
    env = gem_core.make(f"game:Crosswords-v0{variant}")
    assert [oracle_return(env, seed) for seed in range(20)] == pytest.approx([1.0] * 20)


def test_random_variant_draws_its_clues():
    env = gem_core.make("game:Crosswords-v0-random")
    drawn = set()
    for seed in range(20):
        env.reset(seed=seed)
        drawn.add((env.turn_limit, len(env.entries)))
    assert drawn == {(30, 3), (40, 3)}


@pytest.mark.parametrize(
    "kwargs", [{"num_words": 0}, {"num_words": 21}, {"num_words": None}, {"max_turns": 19}, {"max_turns": 0}]
)
def test_impossible_arguments_are_rejected(kwargs):
    with pytest.raises(ConfigError):
        Crosswords(**kwargs)
