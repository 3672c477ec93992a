"""Word problems of one to three steps, from our own templates."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from gem_envs._generated.literal import LiteralEnv
from gem_envs.data import GeneratedRows
from gem_envs.data._rows import DataRow, DataSplit

_NAMES = [
    "Ada",
    "Boris",
    "Chen",
    "Dalia",
    "Emil",
    "Farida",
    "Goran",
    "Hana",
    "Idris",
    "Jolanta",
    "Kofi",
    "Lena",
    "Mirko",
    "Nadia",
    "Otto",
    "Priya",
    "Quentin",
    "Rosa",
    "Selim",
    "Tove",
    "Umar",
    "Vera",
    "Wanda",
    "Xenia",
    "Yusuf",
    "Zora",
]
_THINGS = [
    "apples",
    "marbles",
    "stamps",
    "books",
    "shells",
    "coins",
    "cards",
    "pencils",
    "stickers",
    "buttons",
    "plums",
    "beads",
    "badges",
    "postcards",
    "candles",
    "ribbons",
    "walnuts",
    "tickets",
    "magnets",
    "acorns",
]


class _Template(NamedTuple):
    text: str
    """Text of the problem, with {p} and {q} for names, {t} for things, and a to d for numbers."""
    answer: Callable[[int, int, int, int], int]
    low: tuple[int, int, int, int] = (2, 2, 2, 2)
    high: tuple[int, int, int, int] = (40, 40, 12, 12)


# b is drawn up to a if the text subtracts it: see `draw`.
_TEMPLATES = (
    _Template(
        "{p} has {a} {t} and finds {b} more. How many {t} does {p} have now?",
        lambda a, b, c, d: a + b,
    ),
    _Template(
        "{p} had {a} {t} and gave {b} of them to {q}. How many {t} are left?",
        lambda a, b, c, d: a - b,
    ),
    _Template(
        "A box holds {a} {t}. How many {t} are in {c} boxes?",
        lambda a, b, c, d: a * c,
    ),
    _Template(
        "{p} collects {c} {t} every day. How many does {p} collect in {d} days?",
        lambda a, b, c, d: c * d,
    ),
    _Template(
        "{p} has {a} {t}, and {q} has {b} fewer. How many do they have together?",
        lambda a, b, c, d: 2 * a - b,
    ),
    _Template(
        "{p} has {a} {t}, and {q} has {c} times as many. How many does {q} have?",
        lambda a, b, c, d: a * c,
    ),
    _Template(
        "{p} has {a} {t}, and {q} has {c} times as many. How many do they have in all?",
        lambda a, b, c, d: a * (c + 1),
    ),
    _Template(
        "There are {a} {t} on a table. {p} takes {b} of them and adds {c} new ones. How many are there now?",
        lambda a, b, c, d: a - b + c,
    ),
    _Template(
        "{p} buys {c} bags with {d} {t} in each and one more bag with {a}. How many {t} does {p} buy?",
        lambda a, b, c, d: c * d + a,
    ),
    _Template(
        "{c} friends share {f} {t} equally. How many does each of them get?",
        lambda a, b, c, d: a,
    ),
    _Template(
        "{p} is {a} years old. {q} is {c} years older. How old is {q}?",
        lambda a, b, c, d: a + c,
    ),
    _Template(
        "{p} was {a} years old. {c} years passed, and then another {d} years. How old is {p} now?",
        lambda a, b, c, d: a + c + d,
    ),
    _Template(
        "A train travels {a} km in one hour. How many km does it travel in {c} hours at this speed?",
        lambda a, b, c, d: a * c,
    ),
    _Template(
        "{p} walks {a} steps straight ahead, rests, walks {b} more and then goes {c} steps back. How many "
        "steps is {p} away from the start?",
        lambda a, b, c, d: a + b - c,
        low=(12, 2, 2, 2),
    ),
    _Template(
        "A ticket costs {c} coins. {p} pays for {d} tickets and still has {a} coins. How many "
        "coins did {p} have before?",
        lambda a, b, c, d: c * d + a,
    ),
    _Template(
        "A shelf has {c} rows of {d} {t}. {p} adds {a} more {t}. How many {t} are on the shelf?",
        lambda a, b, c, d: c * d + a,
    ),
    _Template(
        "In the morning {p} sells {a} {t}, in the afternoon {b}, and in the evening {c}. How many does {p} "
        "sell on that day?",
        lambda a, b, c, d: a + b + c,
    ),
    _Template(
        "{p} needs {g} {t} and has {a}. How many more does {p} need?",
        lambda a, b, c, d: b,
    ),
    _Template(
        "{p} reads {c} pages a day. How many days does a book of {h} pages last?",
        lambda a, b, c, d: d,
    ),
    _Template(
        "A garden has {c} beds with {d} plants each. {i} plants are sold. How many plants are left?",
        lambda a, b, c, d: c * d - min(c, d),
    ),
    _Template(
        "{p} saves {c} coins a week for {d} weeks and then spends {i} of them. How many coins are left?",
        lambda a, b, c, d: c * d - min(c, d),
    ),
    _Template(
        "{q} has {a} {t}. {p} has twice as many and gives {b} away. How many does {p} keep?",
        lambda a, b, c, d: 2 * a - b,
    ),
    _Template(
        "A team scores {a} points, then {c} points in each of {d} rounds. What is the total?",
        lambda a, b, c, d: a + c * d,
    ),
    _Template(
        "A rectangle is {a} cm long and {c} cm wide. What is its area in square cm?",
        lambda a, b, c, d: a * c,
    ),
    _Template(
        "A rectangle is {a} cm long and {c} cm wide. What is its perimeter in cm?",
        lambda a, b, c, d: 2 * (a + c),
    ),
    _Template(
        "{p} packs {f} {t} into boxes of {c}. How many boxes are full?",
        lambda a, b, c, d: a,
    ),
    _Template(
        "A bus with {a} passengers stops. {b} get off and {d} get on. How many passengers are there now?",
        lambda a, b, c, d: a - b + d,
    ),
    _Template(
        "{p} and {q} together have {g} {t}. {q} has {b} of them. How many belong to {p}?",
        lambda a, b, c, d: a,
    ),
    _Template(
        "Each of {c} children brings {d} {t}; {a} {t} were there before. How many are there now?",
        lambda a, b, c, d: c * d + a,
    ),
    _Template(
        "The sum of two numbers is {g}. One of them is {a}. What is the other?",
        lambda a, b, c, d: b,
    ),
    _Template(
        "{p} bakes {c} trays of {d} rolls. {q} bakes {a} rolls. What is the difference between their "
        "numbers of rolls?",
        lambda a, b, c, d: abs(c * d - a),
    ),
    _Template(
        "A clock gains {c} minutes a day. How many minutes does it gain in {d} days?",
        lambda a, b, c, d: c * d,
    ),
)


class WordProblemRows(GeneratedRows):
    """Word problems."""

    columns: tuple[str, ...] = ("problem", "answer")
    key = "problem"
    templates = len(_TEMPLATES)

    def draw(self, random: Random) -> DataRow:
        template = random.choice(_TEMPLATES)
        a, b, c, d = (
            random.randint(low, high) for low, high in zip(template.low, template.high, strict=True)
        )
        a, b = max(a, b), min(a, b)  # no number becomes negative
        p, q = random.sample(_NAMES, 2)
        values = {"a": a, "b": b, "c": c, "d": d, "f": a * c, "g": a + b, "h": c * d, "i": min(c, d)}
        problem = template.text.format(p=p, q=q, t=random.choice(_THINGS), **values)
        return {"problem": problem, "answer": str(template.answer(a, b, c, d))}


class WordProblemEnv(LiteralEnv):
    r"""Solve a word problem whose answer is a whole number.

    Action: the number in ``\boxed{...}``, in digits; the last box with an answer counts.

    Rewards: 1 for the right number, 0 for anything else, including an expression with that value. One step.
    `max_return` is 1; the oracle reaches it.

    Items are generated on demand; the two splits share no question.
    """

    def __init__(self, split: DataSplit = "train", size: int = 100_000, seed: int = 0) -> None:
        """Set the split and the number of items.

        Args:
            split: "train" or "test".
            size: Number of items.
            seed: Random seed of the items.

        Raises:
            ConfigError: A value is out of range or of the wrong type.
        """
        self.symbolic, self.image_key, self.keys = False, None, ("problem", "answer")
        self.use_rows(WordProblemRows(split, size, seed))

    def second_answer(self) -> int | None:
        from gem_envs._generated.second_solvers.stories import story_answer

        return story_answer(self.row["problem"])
