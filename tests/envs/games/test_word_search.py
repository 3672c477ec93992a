from __future__ import annotations

from itertools import combinations

import pytest

import gem_core
from gem_core.errors import ConfigError
from gem_envs._games.word_search import WordSearch, _line
from gem_envs._games.words import words
from tests.envs.games.players import oracle_return, say


def start(turns: int = 20) -> WordSearch:
    """Return a grid with CAT across in the second row, and TEA down from its last letter."""
    env = WordSearch(num_words=2, max_turns=turns)
    env.reset(seed=0)
    env.side, env.cells = 4, "xxxxcatxxxexxxax"
    env.shown = list(env.cells)
    env.hidden, env.places = ["cat", "tea"], [[1, 0, 1, 2], [1, 2, 3, 2]]
    return env


@pytest.mark.parametrize("move", ["1 0 1 2", "1 2 1 0", "1,0,1,2"])
def test_a_word_is_found_from_either_end(move):
    env = start()
    observation, reward, terminated, _, info = env.step(say(move))
    assert (observation, reward, terminated) == ("You found cat.", 0.5, False)
    assert info["suffix"] == (
        "   0 1 2 3\n0  x x x x\n1  C A T x\n2  x x e x\n3  x x a x\nWords left: tea.\nTurns left: 19."
    )


def test_the_last_word_wins():
    env = start()
    env.step(say("1 2 3 2"))
    observation, reward, terminated, truncated, info = env.step(say("1 0 1 2"))
    assert (observation, reward) == ("You found cat, the last word.", 0.5)
    assert (terminated, truncated, info["success"]) == (True, False, True)


def test_other_letters_are_a_legal_move():
    observation, reward, *_, info = start().step(say("0 0 0 2"))
    assert (observation, reward, info["invalid"]) == ("xxx is none of the words that are left.", 0.0, None)


@pytest.mark.parametrize(
    ("move", "why"),
    [
        ("0 0 0 4", "Rows and columns are from 0 to 3."),
        ("0 -1 0 3", "Rows and columns are from 0 to 3."),
        ("0 0 1 1", "A word runs along a row or a column."),
        ("1 0 1 1", "You tried that line before."),
        ("1 1 1 0", "You tried that line before."),
        ("1 0 1", "A line is four numbers; you gave 3."),
    ],
)
def test_illegal_moves(move, why):
    env = start()
    env.step(say("1 0 1 1"))
    observation, reward, *_, info = env.step(say(move))
    assert (observation, reward, info["invalid"]) == (why, 0.0, "illegal")


def test_a_word_counts_wherever_it_is_spelled_but_once():
    env = start()
    env.cells = "catxcatxxxexxxax"
    assert env.step(say("0 0 0 2"))[:2] == ("You found cat.", 0.5)
    assert env.step(say("1 0 1 2"))[:2] == ("cat is none of the words that are left.", 0.0)


@pytest.mark.parametrize("text", ["", r"\boxed{}", r"\boxed{a 0 0 1}", "1 0 1 2", r"\boxed{cat}"])
def test_format_errors(text):
    assert start().step(text)[1:4] == (-0.1, True, False)


def test_nothing_is_paid_at_the_limit():
    assert start(turns=1).step(say("0 0 0 1"))[1:4] == (0.0, False, True)


@pytest.mark.parametrize(
    ("hardcore", "num_words"), [(False, 5), (True, 5), (False, 1), (True, 30), (False, 30)]
)
def test_every_word_is_where_the_entry_says(hardcore, num_words):
    env = WordSearch(hardcore=hardcore, num_words=num_words)
    for seed in range(20):
        env.reset(seed=seed)
        assert len(env.cells) == env.side**2
        assert len(set(env.hidden)) == num_words
        for text, (row, col, last_row, last_col) in zip(env.hidden, env.places, strict=True):
            length = last_row - row + last_col - col + 1
            down, right = int(row != last_row), int(col != last_col)
            spelled = [env.cells[(row + i * down) * env.side + col + i * right] for i in range(length)]
            assert "".join(spelled) == text


def test_words_lie_in_both_directions_and_cross():
    env = WordSearch()
    across, down, crossings = 0, 0, 0
    for seed in range(20):
        env.reset(seed=seed)
        across += sum(row == last_row for row, _, last_row, _ in env.places)
        down += sum(row != last_row for row, _, last_row, _ in env.places)
        cells = [set(_line(line, env.side)) for line in env.places]
        crossings += sum(len(one & other) == 1 for one, other in combinations(cells, 2))
    assert 0.3 < across / (across + down) < 0.7
    assert crossings > 0


@pytest.mark.parametrize("hardcore", [False, True])
def test_hardcore_words_are_the_rare_ones(hardcore):
    env = WordSearch(hardcore=hardcore, num_words=5)
    found = set()
    for seed in range(20):
        env.reset(seed=seed)
        found |= set(env.hidden)
    common = {text for length in range(3, 12) for text in words("common", length)}
    assert (found <= common) is not hardcore


def test_words_go_into_rows_when_they_do_not_fit_elsewhere():
    env = WordSearch(num_words=3)
    env.reset(seed=0)
    env.hidden, env.side = ["abc", "dbe", "fbg"], 3
    for _ in range(20):
        places, letters = env._place()
        for text, (row, col, last_row, _) in zip(env.hidden, places, strict=True):
            step = 3 if row != last_row else 1
            assert "".join(letters[row * 3 + col + i * step] for i in range(3)) == text


def test_hardcore_tells_lengths_only():
    env = WordSearch(hardcore=True)
    observation, info = env.reset(seed=1)
    assert "Only their lengths are known" in observation
    assert all(text not in info["suffix"] for text in env.hidden)
    assert f"{len(env.hidden[0])} letters" in info["suffix"]


def test_random_lines_are_new():
    env = gem_core.make("game:WordSearch-v0-random", max_turns=None)
    for seed in range(5):
        env.reset(seed=seed)
        while True:
            *_, terminated, truncated, info = env.step(env.sample_random_action())
            assert info["invalid"] is None
            if terminated or truncated:
                break


@pytest.mark.parametrize("variant", ["", "-easy", "-hard", "-random"])
def test_oracle_wins(variant):
    env = gem_core.make(f"game:WordSearch-v0{variant}")
    assert [oracle_return(env, seed) for seed in range(20)] == pytest.approx([1.0] * 20)


@pytest.mark.parametrize(
    "kwargs", [{"num_words": 0}, {"num_words": 31}, {"num_words": None}, {"max_turns": 0}]
)
def test_impossible_arguments_are_rejected(kwargs):
    with pytest.raises(ConfigError):
        WordSearch(**kwargs)
