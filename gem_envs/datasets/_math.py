"""Math problems with one right answer."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from gem_core import Observation
from gem_core._util.checks import check_choice
from gem_core.errors import DataError
from gem_envs._text import boxed_answer
from gem_envs.data._columns import answer_texts
from gem_envs.data._formats import DataFormat
from gem_envs.data._rows import DataRow
from gem_envs.datasets._base import BadRows, DatasetEnv, Graded, problem_of, references, text_of
from gem_envs.datasets._images import ask_with_images, check_rows, no_images, read_images
from gem_envs.datasets._several import is_close, listed, match_all, number_of
from gem_envs.graders import _symbolic as symbolic_grader
from gem_envs.graders.math import judge

Answers: TypeAlias = Literal["any", "all"]
"""How many of several answers a response must give."""


class MathEnv(DatasetEnv):
    r"""Solve a problem.

    Action: the answer in ``\boxed{...}``; the last box with an answer counts.

    Rewards: 1 for an answer equal to the reference in the sense of `gem_envs.graders.math`, 0 for a wrong
    or missing one. One step. ``info["metrics"]["grader_undecided"]`` is 1 if the grader could not tell
    whether an answer is right, which earns 0, and 0 otherwise.

    `max_return` is 1 and the oracle, which answers with the reference, reaches it.
    """

    format_error_reward = 0.0
    instruction = r"Give the final answer as \boxed{answer}, for example \boxed{\frac{3}{4}}."
    """Instruction on how to answer, with an example."""
    rounded = False
    """Whether decimals among the references are rounded."""
    answers: Answers = "any"
    """How many of several answers are required."""
    tolerance_key: str | None = None
    """Column of the largest error of a number."""
    no_answer: tuple[str, ...] = ()
    """Texts in the place of an answer that say that there is none."""

    def __init__(
        self,
        dataset_name: str | None = None,
        split: str | None = None,
        dataset: list[DataRow] | None = None,
        question_key: str = "problem",
        answer_key: str = "answer",
        image_key: str | None = None,
        subset: str | None = None,
        streaming: bool = False,
        eval_only: bool | None = None,
        symbolic: bool = True,
        rounded: bool = False,
        data_format: str | None = None,
        bad_rows: BadRows = "error",
        answers: Answers = "any",
        tolerance_key: str | None = None,
    ) -> None:
        """Open the dataset.

        Args:
            dataset_name: A parquet, jsonl, json, or csv file, a folder of them, or an id of the Hugging Face
                hub.
            split: Split of the dataset; None if it has only one.
            dataset: The rows themselves, instead of a name.
            question_key: Column of the problem.
            answer_key: Column of the answer, or of a list of accepted answers.
            image_key: Column of the images; None if the problems have none. With images, the observation is a
                list of content parts, with an image at each ``<image>`` of the problem (or ``<image 2>``, by
                number), or all images first if it has no such marks. An image is the bytes of a file (also in
                a dict, as on the hub), a data URL, or the name of a file next to the data.
            subset: Folder within the dataset; None if it has only one.
            streaming: Whether to read a hub dataset over the network on demand.
            eval_only: Whether all items are for evaluation only; False lets all of them be trained on. None
                means True for a split or file named test or validation, and otherwise reserves about one item
                in eight for evaluation.
            symbolic: Whether to ask math-verify for the values of sums, integrals, and limits.
            rounded: Whether decimals among the references are rounded. Then an answer is right if it is equal
                to the reference after rounding to its decimals: 3.14159 and ``\\pi`` for 3.14.
            data_format: Name of a well-known format, such as "squad", which replaces the `_key` arguments:
                `gem_envs.data._formats`.
            bad_rows: Whether rows that cannot be graded are an error, or are left out ("skip").
            answers: Whether "any" of several answers is right, or "all" of them are required, in any order
                and separated by commas.
            tolerance_key: Column of the largest error of a number; None requires the number itself.

        Raises:
            ConfigError: The split, subset, or column does not exist.
            DataError: The dataset cannot be found, reached, or read, or a row has marks without images or
                images without marks.
            MissingDependency: A package for the data or the grading is missing.
        """
        if symbolic:
            symbolic_grader.require()
            self.blocking = True
        self.symbolic, self.rounded = symbolic, rounded
        self.answers = check_choice("answers", answers, get_args(Answers))
        self.tolerance_key = tolerance_key
        self.keys = question_key, answer_key
        self.image_key = image_key
        columns = {"question_key": question_key, "answer_key": answer_key}
        self.shows_images = image_key is not None
        if image_key is not None:
            columns["image_key"] = image_key
        if tolerance_key is not None:
            columns["tolerance_key"] = tolerance_key
        self.open(dataset_name, dataset, split, subset, streaming, eval_only, columns, data_format, bad_rows)
        if image_key is not None:
            check_rows(self.rows, question_key, image_key)

    def question(self, row: DataRow) -> Observation:
        problem = text_of(row, self.keys[0], self.rows)
        try:
            if self.image_key is None:
                no_images(problem, self.rows.columns)
                return f"{problem}\n\n{self.instruction}"
            parts = read_images(row.get(self.image_key), self.rows.name)
            return ask_with_images(problem, parts, self.instruction)
        except DataError as error:
            raise DataError(f"{self.rows.name}: {error} (row {self.index})") from None

    parse = staticmethod(boxed_answer)

    def grade(self, answer: str, row: DataRow) -> Graded:
        right_answers = self._right_answers(row)
        tolerance = number_of(row.get(self.tolerance_key)) if self.tolerance_key is not None else None
        undecided = False

        def is_right(given: str, reference: str) -> bool:
            nonlocal undecided
            if tolerance is not None and is_close(given, reference, tolerance):
                return True
            verdict = judge(given, reference, symbolic=self.symbolic, rounded=self.rounded)
            undecided = undecided or not verdict.decided
            return verdict.correct

        if self.answers == "all" and len(right_answers) > 1:
            right = match_all(listed(answer), right_answers, is_right)
        else:
            right = any(is_right(answer, reference) for reference in right_answers)
        if right:
            return Graded(1.0, "That is right.", {"grader_undecided": 0.0})
        return Graded(0.0, "That is not right.", {"grader_undecided": float(undecided)})

    def use_format(self, form: DataFormat, question: str, answer: str) -> dict[str, str]:
        self.keys, self.answers, self.tolerance_key = (question, answer), form.answers, form.tolerance
        self.no_answer = form.no_answer
        return {"question_key": question, "answer_key": answer}

    def row_problem(self, row: DataRow) -> str | None:
        if (problem := problem_of(row, *self.keys)) is not None:
            return problem
        given = answer_texts(row, self.keys[1]) if self.no_answer else ()
        wrong = next((answer for answer in given if answer in self.no_answer), None)
        return None if wrong is None else f"column {self.keys[1]!r} has {wrong!r} instead of an answer"

    def _right_answers(self, row: DataRow) -> list[str]:
        """Return the right answers; of a solution, its last box or what follows ``####``."""
        return [
            boxed_answer(text) or text.rpartition("####")[2].strip()
            for text in references(row, self.keys[1], self.rows)
        ]

    def right_answer(self, row: DataRow) -> str:
        right_answers = self._right_answers(row)
        return f"\\boxed{{{', '.join(right_answers) if self.answers == 'all' else right_answers[0]}}}"
