"""Small programming tasks with tests and a solution.

A task is a text with numbers, a solution with the same numbers, and inputs at each boundary and for each
branch of the text (`program_tasks`). The expected outputs come from running the solution in this process; it
is our code, not a model's.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from random import Random
from typing import Any

from gem_core._util.checks import check_int
from gem_core._util.seeds import derive_rng
from gem_core.errors import ConfigError
from gem_envs._base import check_bool
from gem_envs._generated.program_inputs import text_of
from gem_envs._generated.program_tasks import TASKS, ProgramTask
from gem_envs.data import GeneratedRows
from gem_envs.data._rows import DataRow, DataSplit
from gem_envs.data._split import is_eval_item
from gem_envs.datasets._code import CodeEnv
from gem_envs.graders._program_tests import ProgramTest
from gem_envs.graders._programs import run_tests

_EASY = (2, 9)
"""Smallest and largest value of k in the easy tasks."""
_DRAWS = 100
"""Number of draws after which a task is taken to have no text in a split."""


class ProgramRows(GeneratedRows):
    """Tasks with their tests."""

    columns: tuple[str, ...] = ("problem", "tests", "solution")
    key = "problem"

    def __init__(self, easy: bool, num_tests: int, split: DataSplit, size: int, seed: int) -> None:
        super().__init__(split, size, seed)
        self.easy, self.num_tests = easy, num_tests
        self.tasks = [task for task in TASKS if task.easy or not easy]

    @property
    def templates(self) -> int:
        """Number of tasks that differ in more than their numbers."""
        return len(self.tasks)

    def __getitem__(self, index: int) -> DataRow:
        """Return a row. Its task is drawn first, so that all with a text in the split occur equally often."""
        random = derive_rng(self.seed, index)
        for task in random.sample(self.tasks, len(self.tasks)):
            for _ in range(_DRAWS):
                k, m = random.randint(*(_EASY if self.easy else task.k)), random.randint(*task.m)
                problem = task.text.format(k=k, m=m)
                if is_eval_item(problem) == (self.split == "test"):
                    return {"problem": problem, **self._solved(task, k, m, random)}
        raise ConfigError(f"{self.name}: these settings produce no question for the split")

    def _solved(self, task: ProgramTask, k: int, m: int, random: Random) -> DataRow:
        """Return the tests and the solution of a task."""
        solution = re.sub(r"\b[KM]\b", lambda name: str(k if name[0] == "K" else m), task.solution)
        inputs = [text_of(value) for value in task.inputs(random, k, m)]
        inputs += [text_of(task.more(random, k, m)) for _ in range(self.num_tests - len(inputs))]
        tests = {"inputs": inputs, "outputs": [run_here(solution, text) for text in inputs]}
        return {"tests": json.dumps(tests), "solution": solution}


class SmallProgramEnv(CodeEnv):
    """Write a short Python program.

    Action: the program in a fenced code block; the last block marked ``python`` counts, or else the last
    block.

    Rewards: 1 when every test passes, else 0; with `partial_credit`, the share of passing tests; -0.1
    without a code block. One step. `max_return` is 1; the oracle reaches it.
    """

    def __init__(
        self,
        easy: bool = False,
        num_tests: int = 4,
        partial_credit: bool = False,
        timeout: float = 5.0,
        split: DataSplit = "train",
        size: int = 100_000,
        seed: int = 0,
    ) -> None:
        """Choose the tasks.

        Args:
            easy: Whether to use only tasks that one short line solves.
            num_tests: Smallest number of tests per task, from 1 to 50. A task has at least one test at each
                boundary and for each branch of its text.
            partial_credit: Whether the reward is the share of passing tests.
            timeout: Time limit per test, in seconds.
            split: "train" or "test"; they share no task text.
            size: Number of items.
            seed: Random seed of the items.

        Raises:
            ConfigError: A value is out of range or of the wrong type.
        """
        check_bool("easy", easy)
        check_int("num_tests", num_tests, 1, 50)
        self.set_tests(None, partial_credit, timeout)
        self.keys = "problem", "tests", "solution"
        self.use_rows(ProgramRows(easy, num_tests, split, size, seed))

    def verify(self, action: str) -> bool | None:
        """Return whether the program prints, for each input of the tests, what the text of the task requires.

        The expected outputs of the tests are not used.
        """
        from gem_envs._generated.second_solvers.programs import required_output

        self._require_running("verify")
        program = self.parse(action)
        if program is None:
            return None
        tests = self.tests_of(self.row)
        required = [ProgramTest(t.stdin, required_output(self.row["problem"], t.stdin)) for t in tests.tests]
        report = run_tests(program, tests._replace(tests=tuple(required)), limits=self.limits)
        return None if report.undecided else report.passed == report.tests

    def random_answer(self, row: DataRow, random: Random) -> str:
        """Return the solution of another item."""
        other = self.rows[random.randrange(len(self.rows))]
        return f"```python\n{other['solution']}\n```"


def run_here(solution: str, stdin: str) -> str:
    """Return the output of one of our own solutions."""
    lines = iter(stdin.splitlines())
    written: list[str] = []

    def show(*values: Any, end: str = "\n") -> None:
        written.append(" ".join(map(str, values)) + end)

    names: dict[str, Any] = {"input": lambda: next(lines), "print": show, "stdin": stdin.splitlines()}
    exec(_compiled(solution), names)
    return "".join(written)


@lru_cache(maxsize=1024)
def _compiled(solution: str) -> Any:
    return compile(solution.replace("import sys\n", "").replace("sys.stdin", "stdin"), "solution", "exec")
