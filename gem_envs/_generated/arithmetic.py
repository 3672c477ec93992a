"""Arithmetic with whole numbers, in symbols and in words."""

from __future__ import annotations

from random import Random

from gem_core._util.checks import check_int
from gem_core.errors import ConfigError
from gem_envs._generated.literal import LiteralEnv
from gem_envs.data import GeneratedRows
from gem_envs.data._rows import DataRow, DataSplit

_ASK = (
    "{} = ?",
    "Calculate {}.",
    "What is {}?",
    "Find the value of {}.",
    "{} equals what number?",
    "Compute {}.",
)
_WORDS = {"+": "plus", "-": "minus", "*": "times"}


class ArithmeticRows(GeneratedRows):
    """Sums, differences, and products of `terms` numbers up to `max_number`."""

    columns: tuple[str, ...] = ("problem", "answer")
    key = "problem"

    def __init__(
        self, operations: str, terms: int, max_number: int, split: DataSplit, size: int, seed: int
    ) -> None:
        super().__init__(split, size, seed)
        self.operations, self.terms, self.max_number = operations, terms, max_number

    def draw(self, random: Random) -> DataRow:
        numbers = [random.randint(0, self.max_number) for _ in range(self.terms)]
        signs = [random.choice(self.operations) for _ in numbers[1:]]
        value = _value(numbers, signs)
        in_words = random.random() < 0.25
        shown = [_WORDS[sign] if in_words else sign for sign in signs]
        text = str(numbers[0]) + "".join(f" {s} {n}" for s, n in zip(shown, numbers[1:], strict=True))
        return {"problem": random.choice(_ASK).format(text), "answer": str(value)}

    @property
    def templates(self) -> int:
        """Number of questions that differ in more than their numbers."""
        return int(len(_ASK) * 2 * len(self.operations) ** (self.terms - 1))


class ArithmeticEnv(LiteralEnv):
    r"""Evaluate a line of arithmetic.

    Action: the number in ``\boxed{...}``, in digits; the last box with an answer counts.

    Rewards: 1 for the right number, 0 for anything else, including an expression with that value. One step.
    `max_return` is 1; the oracle reaches it.

    Products come before sums. Items are generated on demand; the two splits share no question.
    """

    def __init__(
        self,
        operations: str = "+-*",
        terms: int = 3,
        max_number: int = 99,
        split: DataSplit = "train",
        size: int = 100_000,
        seed: int = 0,
    ) -> None:
        """Set the ranges of the numbers.

        Args:
            operations: The operations that occur, some of ``+``, ``-``, and ``*``.
            terms: Number of numbers in a line, from 2 to 9.
            max_number: Largest number, at least 9.
            split: "train" or "test".
            size: Number of items.
            seed: Random seed of the items.

        Raises:
            ConfigError: A value is out of range or of the wrong type.
        """
        if not operations or set(operations) - set(_WORDS):
            raise ConfigError(f"operations={operations!r}: expected some of '+-*'")
        check_int("terms", terms, 2, 9)
        check_int("max_number", max_number, 9, 10**9)
        self.symbolic, self.image_key, self.keys = False, None, ("problem", "answer")
        self.use_rows(ArithmeticRows(operations, terms, max_number, split, size, seed))

    def second_answer(self) -> int | None:
        from gem_envs._generated.second_solvers.sums import arithmetic

        return arithmetic(self.row["problem"])


def _value(numbers: list[int], signs: list[str]) -> int:
    total, product, sign = 0, numbers[0], 1
    for operation, number in zip(signs, numbers[1:], strict=True):
        if operation == "*":
            product *= number
        else:
            total += sign * product
            product, sign = number, 1 if operation == "+" else -1
    return total + sign * product
