"""Random actions for games of TextArena, which does not say what is legal.

A pattern is an action with choices in angle brackets: ``[<0..8>]`` draws a number, ``[<up|down>]`` a word.
"""

from __future__ import annotations

import re
from random import Random

_PATTERNS = {
    "2048": "[<up|down|left|right>]",
    "Bandit": "[<red|blue|green|yellow|purple>]",
    "Blackjack": "[<hit|stand>]",
    "ConnectFour": "[col <0..6>]",
    "FifteenPuzzle": "[<up|down|left|right>]",
    "FrozenLake": "[<up|down|left|right>]",
    "GuessTheNumber": "[<1..20>]",
    "IteratedMatchingPennies": "[<heads|tails>]",
    "IteratedPrisonersDilemma": "[<cooperate|defect>]",
    "IteratedRockPaperScissors": "[<rock|paper|scissors>]",
    "KuhnPoker": "[<check|bet|fold|call>]",
    "LightsOut": "[<0..4> <0..4>]",
    "Mastermind": "[<1..2> <3..4> <5..6> <1..6>]",
    "Minesweeper": "[<0..7> <0..7>]",
    "Nim": "[<0..2> <1..3>]",
    "Secretary": "[<accept|continue>]",
    "Sokoban": "[<up|down|left|right>]",
    "TicTacToe": "[<0..8>]",
    "TowerOfHanoi": "[<A|B|C> <A|B|C>]",
}
"""Patterns of games in their standard size, by name without version."""
_CHOICE = re.compile(r"<([^<>]*)>")
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")


def sample_pattern(game: str) -> str | None:
    """Return the known pattern of a game; None if it is unknown."""
    return _PATTERNS.get(game.partition("-v")[0])


def draw_action(pattern: str, random: Random) -> str:
    """Return an action drawn from a pattern, legal or not."""

    def choose(match: re.Match[str]) -> str:
        bounds = _RANGE.fullmatch(match[1])
        if bounds:
            return str(random.randint(int(bounds[1]), int(bounds[2])))
        words: list[str] = match[1].split("|")
        return random.choice(words)

    return _CHOICE.sub(choose, pattern)
