"""Arithmetic on a file that the model can only read with a tool."""

from __future__ import annotations

from random import Random
from typing import Any

from gem_core import Observation
from gem_core._util.checks import check_int
from gem_envs._generated.literal import LiteralEnv
from gem_envs.data import GeneratedRows
from gem_envs.data._rows import DataRow, DataSplit

FILE = "numbers.txt"
_FUNCTIONS = {"sum": "sum", "largest number": "max", "smallest number": "min"}
_PROGRAM = "print({}(map(int, open('" + FILE + "'))) % {})"


class FileArithmeticRows(GeneratedRows):
    """Files of `numbers` numbers from 10 to 99, with one question each, whose answer is below `modulus`."""

    columns: tuple[str, ...] = ("problem", "answer", "file", "key")
    key = "key"

    def __init__(self, numbers: int, modulus: int, split: DataSplit, size: int, seed: int) -> None:
        super().__init__(split, size, seed)
        self.numbers, self.modulus = numbers, modulus

    def draw(self, random: Random) -> DataRow:
        numbers = [random.randint(10, 99) for _ in range(self.numbers)]
        quantity = random.choice(list(_FUNCTIONS))
        value = {"sum": sum(numbers), "max": max(numbers), "min": min(numbers)}[_FUNCTIONS[quantity]]
        return {
            "problem": f"The file {FILE} has {self.numbers} numbers.\n"
            f"Divide the {quantity} by {self.modulus}. What remains?",
            "answer": str(value % self.modulus),
            "file": "".join(f"{number}\n" for number in numbers),
            "key": f"{quantity} of {' '.join(map(str, numbers))}",
        }

    @property
    def templates(self) -> int:
        """Number of questions that differ in more than their numbers."""
        return len(_FUNCTIONS)


class FileArithmeticEnv(LiteralEnv):
    r"""Find the remainder of the sum, the largest, or the smallest number in a file.

    Action: the remainder in ``\boxed{...}``, in digits; the last box with an answer counts.

    Rewards: 1 for the right number, 0 for anything else, including an expression with that value. One step,
    besides tool calls. `max_return` is 1; the oracle reaches it.

    No observation contains the numbers: `tool_files` holds the file, and the wrapper ``tools`` passes it to
    the tools. ``math:FileArithmetic-v0-python`` has the Python tool around it, whose random player reads the
    file with a random program half of the time.
    """

    def __init__(
        self,
        numbers: int = 8,
        modulus: int = 10,
        split: DataSplit = "train",
        size: int = 100_000,
        seed: int = 0,
    ) -> None:
        """Set the ranges of the numbers.

        Args:
            numbers: Number of numbers in a file, from 2 to 1,000.
            modulus: Divisor, from 2 to 100; 10 asks for the last digit.
            split: "train" or "test".
            size: Number of items.
            seed: Random seed of the items.

        Raises:
            ConfigError: A value is out of range or of the wrong type.
        """
        check_int("numbers", numbers, 2, 1000)
        self.symbolic, self.image_key, self.keys = False, None, ("problem", "answer")
        check_int("modulus", modulus, 2, 100)
        self.modulus = modulus
        self.use_rows(FileArithmeticRows(numbers, modulus, split, size, seed))

    def question(self, row: DataRow) -> Observation:
        return f"{row['problem']} Answer with \\boxed{{number}}, for example \\boxed{{7}}."

    def random_answer(self, row: DataRow, random: Random) -> str:
        return f"\\boxed{{{random.randrange(self.modulus)}}}"

    def second_answer(self) -> int | None:
        from gem_envs._generated.second_solvers.sums import remainder

        return remainder(self.row["problem"], self.tool_files)

    @property
    def tool_files(self) -> dict[str, str]:
        """Return the file of this episode, for the tools."""
        return {FILE: str(self.row["file"])}

    def sample_tool_call(self) -> tuple[str, dict[str, Any]]:
        """Return a random program on the file, for a random player with tools."""
        function = self.action_random.choice(list(_FUNCTIONS.values()))
        return "python", {"code": _PROGRAM.format(function, self.modulus)}

    def oracle_tool_call(self, uses: int) -> tuple[str, dict[str, Any]] | None:
        """Return the program that finds the answer."""
        if uses:
            return None
        quantity = str(self.row["key"]).partition(" of ")[0]
        return "python", {"code": _PROGRAM.format(_FUNCTIONS[quantity], self.modulus)}
