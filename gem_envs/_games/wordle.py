"""Wordle: find a word from the marks that each guess earns."""

from __future__ import annotations

from random import Random

from gem_core._util.checks import check_int
from gem_envs._base import MoveResult, TurnBasedEnv, check_together
from gem_envs._games.wordle_player import best_guess, marks
from gem_envs._games.words import dictionary, words
from gem_envs._text import word

_EXAMPLES = {3: "ace", 4: "tale", 5: "crane", 6: "planet"}
"""A guess for the prompt, by length."""


class Wordle(TurnBasedEnv[str]):
    r"""Find a hidden English word; each guess reveals which of its letters are right.

    Action: ``\boxed{crane}``, in either case; blanks between the letters do not matter. A guess of the
    wrong length, a repeated guess, and (with `only_real_words`) a word outside the bundled dictionary are
    illegal.

    Rewards: .5 / word_length for each position that is right for the first time, and .5 more for the word,
    so an episode that finds it earns 1 in total. Nothing is paid at the turn limit. A format error ends
    the episode with -0.1.

    `max_return` is 1. The oracle guesses the word, among those consistent with all marks so far, that best
    distinguishes the others. It finds every word of 3 letters in at most 12 turns, of 4 in 9, of
    5 in 8 and of 6 in 6 (counted over all hidden words), so it reaches the maximum in every variant.
    """

    state_fields = (*TurnBasedEnv.state_fields, "secret", "right", "guesses")

    def __init__(
        self,
        word_length: int | None = 5,
        only_real_words: bool = True,
        max_turns: int | None = 20,
    ) -> None:
        """Set the size, or have it drawn at each reset.

        Args:
            word_length: Number of letters: 3 to 6.
            only_real_words: Whether a guess has to be in the bundled dictionary (14,000 words); the
                hidden word always is.
            max_turns: Turn limit. None (together with `word_length`) draws a length from 3 to 5 at each
                reset, with 5 turns per letter.

        Raises:
            ConfigError: Only one of `word_length` and `max_turns` is None, or one is out of range.
        """
        check_together(word_length=word_length, max_turns=max_turns)
        self.only_real_words = only_real_words
        self.size: tuple[int, int] | None = None
        if word_length is not None and max_turns is not None:
            self.size = (
                check_int("word_length", word_length, 3, 6),
                check_int("max_turns", max_turns, 1),
            )

    def new_game(self) -> None:
        length, self.turn_limit = self.size or self._draw_size()
        self.secret = self.random.choice(words("common", length))
        self.right = [False] * length  # positions that a guess had right
        self.guesses: list[str] = []

    def _draw_size(self) -> tuple[int, int]:
        length = self.random.randint(3, 5)
        return length, 5 * length

    def rules(self) -> str:
        length = len(self.secret)
        real = "English words" if self.only_real_words else "words"
        return (
            f"Find the hidden English word of {length} letters in at most {self.turn_limit} turns. Guesses "
            f"are {real} of {length} letters, none twice. Below each guess its letters are marked: "
            "G (green) is in the right place, Y (yellow) is in the word at another place, and - is not in "
            "the word (or not once more). Give each guess in a box, for example "
            f"\\boxed{{{_EXAMPLES[length]}}}."
        )

    parse = staticmethod(word)

    def play(self, move: str) -> MoveResult:
        secret = self.secret
        if len(move) != len(secret):
            return f"The word has {len(secret)} letters; you gave {len(move)}.", 0.0, "illegal"
        if move in self.guesses:
            return f"You guessed {move} before.", 0.0, "illegal"
        if self.only_real_words and move not in dictionary(len(secret)):
            return f"{move} is not in the dictionary.", 0.0, "illegal"
        self.guesses.append(move)
        marked = marks(move, secret)
        reward, right = 0.0, self.right
        if "G" in marked:
            for place, mark in enumerate(marked):
                if mark == "G" and not right[place]:
                    right[place] = True
                    reward += 0.5 / len(right)
        if move == secret:
            return f"{move} is the word.", reward + 0.5, "solved"
        return f"{' '.join(move)}\n{' '.join(marked)}", reward, "continue"

    def progress(self) -> float:
        """Return the fraction of positions that some guess had right."""
        return sum(self.right) / len(self.right)

    def random_move(self, random: Random) -> str:
        guess = random.choice(words("common", len(self.secret)))
        if guess in self.guesses:
            new = [other for other in words("common", len(self.secret)) if other not in self.guesses]
            guess = random.choice(new)  # never empty: the hidden word is one of them
        return guess

    def best_move(self) -> str:
        return best_guess(
            len(self.secret), tuple((guess, marks(guess, self.secret)) for guess in self.guesses)
        )
