"""Questions with a short answer in words: open questions, and true-or-false logic."""

from __future__ import annotations

from typing import Literal, get_args

from gem_core._util.checks import check_choice
from gem_envs._text import boxed_answer, last_tag, plain, undecorated
from gem_envs.data._formats import DataFormat
from gem_envs.data._rows import DataRow
from gem_envs.datasets._base import BadRows, DatasetEnv, Graded, problem_of, references, text_of
from gem_envs.graders.qa import exact_match

Form = Literal["tag", "boxed"]


class QaEnv(DatasetEnv):
    r"""Answer a question.

    Action: the answer in ``<answer>...</answer>``, or in ``\boxed{...}`` if the question asks for it; the
    last one counts.

    Rewards: 1 for an exact match with any reference, ignoring letter case, punctuation, articles,
    whitespace, the form of Unicode, LaTeX around the answer (``\text{...}``), and ``Answer:`` in front; 0
    for a wrong or missing answer. One step.

    `max_return` is 1 and the oracle, which answers with the first reference, reaches it.
    """

    format_error_reward = 0.0

    def __init__(
        self,
        dataset_name: str | None = None,
        split: str | None = None,
        dataset: list[DataRow] | None = None,
        question_key: str = "question",
        answer_key: str = "answer",
        extract_boxed: bool = False,
        subset: str | None = None,
        streaming: bool = False,
        eval_only: bool | None = None,
        data_format: str | None = None,
        bad_rows: BadRows = "error",
    ) -> None:
        r"""Open the dataset.

        Args:
            dataset_name: A parquet, jsonl, json, or csv file, a folder of them, or an id of the Hugging Face
                hub.
            split: Split of the dataset; None if it has only one.
            dataset: The rows themselves, instead of a name.
            question_key: Column of the question.
            answer_key: Column of the answer, or of a list of accepted answers.
            extract_boxed: Whether the answer is in ``\boxed{}``, as the question asks.
            subset: Folder within the dataset; None if it has only one.
            streaming: Whether to read a hub dataset over the network on demand.
            eval_only: Whether all items are for evaluation only; False lets all of them be trained on. None
                means True for a split or file named test or validation, and otherwise reserves about one item
                in eight for evaluation.
            data_format: Name of a well-known format, such as "squad", which replaces the `_key` arguments:
                `gem_envs.data._formats`.
            bad_rows: Whether rows that cannot be graded are an error, or are left out ("skip").

        Raises:
            ConfigError: The split, subset, or column does not exist.
            DataError: The dataset cannot be found, reached, or read.
            MissingDependency: A package for the data is missing.
        """
        self.keys = question_key, answer_key
        self.set_form("boxed" if extract_boxed else "tag")
        columns = {"question_key": question_key, "answer_key": answer_key}
        self.open(dataset_name, dataset, split, subset, streaming, eval_only, columns, data_format, bad_rows)

    def set_form(self, form: Form) -> None:
        """Set the marks around an answer."""
        self.boxed = check_choice("form", form, get_args(Form)) == "boxed"
        self.form = "\\boxed{}" if self.boxed else "<answer></answer>"

    def use_format(self, form: DataFormat, question: str, answer: str) -> dict[str, str]:
        self.keys = question, answer
        return {"question_key": question, "answer_key": answer}

    def row_problem(self, row: DataRow) -> str | None:
        return problem_of(row, *self.keys)

    def question(self, row: DataRow) -> str:
        form, example = self._marked("answer"), self._marked("True" if self.boxed else "Paris")
        question = text_of(row, self.keys[0], self.rows)
        return f"{question}\n\nGive the final answer as {form}, for example {example}."

    def parse(self, text: str) -> str | None:
        return boxed_answer(text) if self.boxed else last_tag(text, "answer")

    def grade(self, answer: str, row: DataRow) -> Graded:
        right_answers = references(row, self.keys[1], self.rows)
        texts = answer, undecorated(answer), plain(answer)
        right = any(exact_match(text, right_answers) for text in texts)
        return Graded(1.0, "That is right.") if right else Graded(0.0, "That is not right.")

    def right_answer(self, row: DataRow) -> str:
        return self._marked(references(row, self.keys[1], self.rows)[0])

    def _marked(self, answer: str) -> str:
        return f"\\boxed{{{answer}}}" if self.boxed else f"<answer>{answer}</answer>"
