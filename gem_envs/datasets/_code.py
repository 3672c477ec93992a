"""Programming tasks with tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from gem_core._util.checks import check_int, check_number
from gem_core.errors import DataError, EnvError
from gem_envs._text import last_code_block
from gem_envs.data import Rows
from gem_envs.data._formats import DataFormat
from gem_envs.data._rows import DataRow
from gem_envs.datasets._base import BadRows, DatasetEnv, Graded, problem_of, text_of
from gem_envs.graders._outputs import OutputRule, rule_named
from gem_envs.graders._program_tests import ProgramTests, keys_of, row_tests
from gem_envs.graders._programs import program_limits, run_tests
from gem_envs.sandbox._packages import importable

_STREAM = "Write a Python program that reads standard input and writes standard output."


class CodeEnv(DatasetEnv):
    """Write a Python program that passes the item's tests.

    Action: the program in a fenced code block, after the thinking if there is any; the last block marked
    ``python`` counts, or else the last block.

    Rewards: 1 if every test passes, else 0; with `partial_credit`, the share of passing tests. A response
    without a code block earns -0.1. One step. The last observation says how the first failing test failed,
    without any data of the test: with several attempts (`retry`), a table of the tests seen would solve it.
    ``info["metrics"]["tests_passed"]`` is the share of passing tests; without `partial_credit`, testing stops
    at the first failure, and only the tests before it count as passed.

    Each test runs in its own process, at the strongest fast isolation level that works on this machine
    (`gem_envs.sandbox`). CPU time is limited; for a program that only waits there is no verdict, and `step`
    raises `EnvError`.

    `max_return` is 1. The oracle knows the solution only if the data has a column for it.
    """

    format_error_reward = -0.1
    blocking = True
    form = "a code block"
    rule: OutputRule | None = None
    """How outputs are compared; None means as the dataset does."""
    keys: tuple[str, str, str | None]
    """Columns of the task, of the tests, and of the solution if there is one."""

    def __init__(
        self,
        dataset_name: str | None = None,
        split: str | None = None,
        dataset: list[DataRow] | None = None,
        question_key: str | None = None,
        test_key: str | None = None,
        solution_key: str | None = None,
        max_tests: int | None = 12,
        partial_credit: bool = False,
        timeout: float = 5.0,
        subset: str | None = None,
        streaming: bool = False,
        eval_only: bool | None = None,
        compare: str | None = None,
        data_format: str | None = None,
        bad_rows: BadRows = "error",
    ) -> None:
        """Open the dataset.

        Args:
            dataset_name: A parquet, jsonl, json, or csv file, a folder of them, or an id of the Hugging Face
                hub.
            split: Split of the dataset; None if it has only one.
            dataset: The rows themselves, instead of a name.
            question_key: Column of the task. None means the one of the dataset whose columns the rows have;
                see `gem_envs.graders._program_tests`.
            test_key: Column of the tests; None as for `question_key`.
            solution_key: Column of a program that passes the tests; None if there is no such column.
            max_tests: Number of tests to run, those with the longest inputs; None means all.
            partial_credit: Whether the reward is the share of passing tests.
            timeout: Limit of CPU time per test in seconds; the item's own limit counts if it is higher.
            subset: Folder within the dataset; None if it has only one.
            streaming: Whether to read a hub dataset over the network on demand.
            eval_only: Whether all items are for evaluation only; False lets all of them be trained on. None
                means True for a split or file named test or validation, and otherwise reserves about one item
                in eight for evaluation.
            compare: Name of the rule by which outputs are compared (`gem_envs.graders._outputs`). None means
                the rule of the dataset that has this column of tests.
            data_format: Name of a well-known format, such as "squad", which replaces the `_key` arguments:
                `gem_envs.data._formats`.
            bad_rows: Whether rows that cannot be graded are an error, or are left out ("skip").

        Raises:
            ConfigError: The split, subset, or column does not exist, or a limit is out of range.
            DataError: The dataset cannot be found, reached, or read.
            MissingDependency: A package for the data is missing.
        """
        self.set_tests(max_tests, partial_credit, timeout)
        self.rule = None if compare is None else rule_named(compare)
        self.keys = question_key or "", test_key or "", solution_key
        self.open(dataset_name, dataset, split, subset, streaming, eval_only, {}, data_format, bad_rows)

    def use_rows(self, rows: Rows, columns: Mapping[str, str] | None = None) -> None:
        """Set `rows`, and the columns that were not named from those of the known datasets."""
        question, tests = keys_of(rows.columns)
        self.keys = self.keys[0] or question, self.keys[1] or tests, self.keys[2]
        named = {"question_key": self.keys[0], "test_key": self.keys[1]}
        if self.keys[2] is not None:
            named["solution_key"] = self.keys[2]
        super().use_rows(rows, named)

    def set_tests(self, max_tests: int | None, partial_credit: bool, timeout: float) -> None:
        """Set the options for testing programs."""
        check_number("timeout", timeout, above=0)
        self.max_tests = check_int("max_tests", max_tests, 1, optional=True)
        self.partial_credit = partial_credit
        self.limits = program_limits(timeout)

    def tests_of(self, row: DataRow) -> ProgramTests:
        """Return the tests of an item."""
        return row_tests(row, self.keys[1], self.rule)

    def use_format(self, form: DataFormat, question: str, answer: str) -> dict[str, str]:
        self.keys = question, answer, self.keys[2]
        return {"question_key": question, "test_key": answer}

    def graded_keys(self, columns: Mapping[str, str]) -> Sequence[str]:
        return self.rows.columns  # tests may be in several of them

    def row_problem(self, row: DataRow) -> str | None:
        problem = problem_of(row, self.keys[0], None)
        if problem is None:
            try:
                self.tests_of(row)
            except DataError as error:
                return str(error)
        return problem

    def question(self, row: DataRow) -> str:
        tests = self.tests_of(row)
        task, how, example = text_of(row, self.keys[0], self.rows), _STREAM, 'print("hello")'
        if tests.function is not None:
            how = f"Write a Python function {tests.function}."
            example = f"def {tests.function}(*arguments):\n    return None"
        elif tests.statements is not None:
            name = tests.statements.entry_point
            how = f"Write the whole function {name}." if name else "Write a Python function."
            example = f"def {name or 'name'}(*arguments):\n    return None"
            if not name:
                task = f"{task}\n\nIt must pass these tests:\n" + "\n".join(
                    test.stdin for test in tests.tests
                )
        starter = row.get("starter_code")
        if isinstance(starter, str) and starter.strip():
            how, example = f"{how} Begin with the code below.", starter.strip("\n")
        return f"{task}\n\n{how} {importable()} Give it as one block, for example:\n```python\n{example}\n```"

    def parse(self, text: str) -> str | None:
        for part in (text.rpartition("</think>")[2], text):
            for language in ("python", None):
                program = last_code_block(part, language)
                if program is not None:
                    return program
        return None

    def grade(self, answer: str, row: DataRow) -> Graded:
        report = run_tests(
            answer,
            self.tests_of(row),
            max_tests=self.max_tests,
            stop_early=not self.partial_credit,
            limits=self.limits,
        )
        if report.undecided:
            raise EnvError(report.hint)
        share = report.passed / report.tests
        score = share if self.partial_credit else float(share == 1)
        return Graded(score, report.hint or "All tests passed.", {"tests_passed": share})

    def right_answer(self, row: DataRow) -> str | None:
        if self.keys[2] is None:
            return None
        return f"```python\n{text_of(row, self.keys[2], self.rows).strip()}\n```"

    def random_answer(self, row: DataRow, random: Random) -> str:
        """Return a short program that runs."""
        line = random.choice(["print(input())", f"print({random.randrange(100)})", "print(len(input()))"])
        return f"```python\n{line}\n```"
