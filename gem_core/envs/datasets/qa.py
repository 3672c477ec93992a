"""Questions with a short answer in words: open questions, and true-or-false logic."""

from __future__ import annotations

from typing import Literal, get_args

from gem_core.data import Row
from gem_core.envs.datasets.base import DataSetEnv, Graded, references, text_of
from gem_core.errors import ConfigError
from gem_core.graders.qa import exact_match
from gem_core.text import boxed_answer, last_tag, undecorated

Form = Literal["tag", "boxed"]


class QaEnv(DataSetEnv):
    r"""Answer a question.

    Action: the answer in ``<answer>...</answer>``, or in ``\boxed{...}`` where the question asks for that;
    the last one counts.

    Rewards: 1 for an exact match with any reference, letter case, ASCII punctuation, articles, blanks and
    LaTeX around the answer (``\text{...}``) aside; 0 for a wrong or missing answer. One step.

    `max_return` is 1 and the oracle, which answers with the first reference, reaches it.
    """

    format_error_reward = 0.0

    def __init__(
        self,
        dataset_name: str | None = None,
        split: str | None = None,
        dataset: list[Row] | None = None,
        question_key: str = "question",
        answer_key: str = "answer",
        extract_boxed: bool = False,
        subset: str | None = None,
        streaming: bool = False,
        eval_only: bool | None = None,
    ) -> None:
        r"""Open the data set.

        Args:
            dataset_name: A parquet, jsonl, json or csv file, a folder of them, or an id of the Hugging Face
                hub.
            split: Part of the data set; None where it has one only.
            dataset: Rows themselves, instead of a name.
            question_key: Column of the question.
            answer_key: Column of the answer, or of a list of answers any of which is right.
            extract_boxed: The answer stands in ``\boxed{}``, and the question asks for that.
            subset: Folder within the data set; None where it has one only.
            streaming: Read a hub data set over the network as items are asked for.
            eval_only: True: every item is for evaluation only. False: all items may be trained on. None: True
                for a split or a file named test or validation; else about one item in eight is for
                evaluation.

        Raises:
            ConfigError: No such split, subset or column.
            DataError: The data set cannot be found, reached or read.
            MissingDependency: A package for the data is missing.
        """
        self.keys = question_key, answer_key
        self.set_form("boxed" if extract_boxed else "tag")
        columns = {"question_key": question_key, "answer_key": answer_key}
        self.open(dataset_name, dataset, split, subset, streaming, eval_only, columns)

    def set_form(self, form: Form) -> None:
        """Choose how an answer is marked."""
        if form not in get_args(Form):
            raise ConfigError(f"form must be 'tag' or 'boxed', not {form!r}")
        self.boxed = form == "boxed"
        self.form = "\\boxed{}" if self.boxed else "<answer></answer>"

    def question(self, row: Row) -> str:
        return (
            f"{text_of(row, self.keys[0], self.rows)}\n\nGive the final answer as {self._marked('answer')}."
        )

    def parse(self, text: str) -> str | None:
        return boxed_answer(text) if self.boxed else last_tag(text, "answer")

    def grade(self, answer: str, row: Row) -> Graded:
        right_answers = references(row, self.keys[1], self.rows)
        right = exact_match(answer, right_answers) or exact_match(undecorated(answer), right_answers)
        return Graded(1.0, "That is right.") if right else Graded(0.0, "That is not right.")

    def right_answer(self, row: Row) -> str:
        return self._marked(references(row, self.keys[1], self.rows)[0])

    def _marked(self, answer: str) -> str:
        return f"\\boxed{{{answer}}}" if self.boxed else f"<answer>{answer}</answer>"
