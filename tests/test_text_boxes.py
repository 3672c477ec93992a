"""A box without a move or an answer, after the one that counts, has no effect."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

import gem_core
from gem_envs.multiagent._tic_tac_toe import TicTacToe

GAMES = [
    "Crosswords", "FifteenPuzzle", "Game2048", "GuessTheNumber", "Hangman", "Mastermind", "Minesweeper",
    "Sokoban", "Sudoku", "TowerofHanoi", "WikiGame", "Wordle", "WordSearch",
]  # fmt: skip
IDS = [
    *(f"game:{name}-v0-easy" if name != "WikiGame" else "game:WikiGame-v0" for name in GAMES),
    "math:Arithmetic-v0-easy", "math:WordProblems-v0", "logic:Proofs-v0-d1", "rg:chain_sum",
]  # fmt: skip
EMPTY = r"That is what I give, as asked in \boxed{}, not in \boxed{ \text{} }."
ECHO = r"The form was \boxed{answer} or \boxed{number}."


def played(id: str, after: str) -> list[tuple[Any, ...]]:
    """Return all results of the oracle's first moves, with a text after each."""
    with gem_core.make(id) as env:
        env.reset(seed=3)
        steps = []
        for _ in range(3):
            action = env.oracle_action() or env.sample_random_action()
            *result, info = env.step(f"{action} {after}")
            steps.append((*result, info))
            if result[2] or result[3]:
                break
        return steps


@pytest.mark.parametrize("id", IDS)
def test_an_empty_box_after_the_answer_changes_nothing(id: str) -> None:
    if id.startswith("rg:") and not importlib.util.find_spec("reasoning_gym"):
        pytest.skip("needs the extra 'rg'")
    alone = played(id, "")
    assert alone[0][-1]["invalid"] is None
    assert played(id, EMPTY) == alone
    if not id.startswith("game:"):
        assert alone[-1][1] == 1.0
        assert played(id, ECHO) == alone


def test_a_player_of_a_game_of_two_is_read_alike() -> None:
    game = TicTacToe()
    game.reset(seed=0)
    (agent,) = game.active_agents()
    infos = game.step({agent: rf"\boxed{{5}} {EMPTY}"})[4]
    assert infos[agent]["invalid"] is None
