"""Random actions for games of TextArena, which does not list legal actions.

A pattern is an action with choices in angle brackets: ``[<0..8>]`` draws a number, ``[<up|down>]`` a word.
"""

from __future__ import annotations

import re
from random import Random

from gem_core._util.checks import expected

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


def check_pattern(pattern: str) -> str:
    """Check that every choice of a pattern is closed and not empty.

    Raises:
        ConfigError: A choice is not closed or is empty.
    """
    choices = _CHOICE.findall(pattern) if isinstance(pattern, str) else [""]
    if not all(choices) or "<" in _CHOICE.sub("", pattern):
        raise expected("sample", pattern, "a pattern of actions such as '[<0..8>]' or '[<up|down>]'", True)
    return pattern


def draw_action(pattern: str, random: Random) -> str:
    """Return an action drawn from a pattern, legal or not."""

    def choose(match: re.Match[str]) -> str:
        bounds = _RANGE.fullmatch(match[1])
        if bounds:
            return str(random.randint(int(bounds[1]), int(bounds[2])))
        words: list[str] = match[1].split("|")
        return random.choice(words)

    return _CHOICE.sub(choose, pattern)
