"""Formats of well-known datasets: which columns hold the prompt, the answer, and how it is graded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from gem_core._util.registry import Registry
from gem_core.errors import ConfigError
from gem_envs.data._columns import roots, value_at

Kind = Literal["math", "qa", "code"]


@dataclass(frozen=True)
class DataFormat:
    """The columns of a format. Of several keys, the first whose columns exist counts.

    Attributes:
        kind: Family of environments that plays it by default.
        question: Keys of the prompt.
        answer: Keys of the answer; for programs, of the tests.
        answers: "any": one of several answers is enough. "all": all of them are required.
        tolerance: Key of the largest error of a number; None if there is none.
        marks: Columns that only this format has, by which it is recognized.
        no_answer: Texts that say that there is no answer.
    """

    kind: Kind
    question: tuple[str, ...]
    answer: tuple[str, ...]
    answers: Literal["any", "all"] = "any"
    tolerance: str | None = None
    marks: tuple[str, ...] = ()
    no_answer: tuple[str, ...] = ()

    def keys(self, name: str, columns: Iterable[str]) -> tuple[str, str]:
        """Return the keys of prompt and answer in rows with these columns.

        Raises:
            ConfigError: The rows lack the columns.
        """
        known = tuple(columns)
        found = []
        for what, choices in (("prompt", self.question), ("answer", self.answer)):
            key = next((key for key in choices if set(roots(key, known)) <= set(known)), None)
            if key is None:
                raise ConfigError(
                    f"the format has its {what} in {' or '.join(map(repr, choices))}, but {name} has the "
                    f"columns {', '.join(known)}; name another format, or its columns by their keys"
                )
            found.append(key)
        return found[0], found[1]


FORMATS: Registry[DataFormat] = Registry("data format")
for _name, _format in {
    "verl": DataFormat(
        "math", ("prompt",), ("reward_model.ground_truth",), marks=("prompt", "reward_model")
    ),
    "orz": DataFormat("math", ("0.value",), ("1.ground_truth.value",), marks=("0", "1")),
    "olympiadbench": DataFormat(
        "math", ("context+question", "question"), ("final_answer",), "all", "error",
        marks=("question", "final_answer"),
    ),
    "squad": DataFormat(
        "qa", ("context+question",), ("answers.text",), marks=("context", "question", "answers")
    ),
    "triviaqa": DataFormat(
        "qa", ("question",), ("answer.value+answer.aliases+answer.normalized_aliases",),
        marks=("question", "entity_pages"),
    ),
    "hotpotqa": DataFormat(
        "qa", ("question",), ("answer",), marks=("question", "supporting_facts", "answer")
    ),
    "livecodebench": DataFormat(
        "code", ("question_content",), ("public_test_cases",),
        marks=("question_content", "public_test_cases"),
    ),
    "apps": DataFormat("code", ("question",), ("input_output",), marks=("question", "input_output")),
    "taco": DataFormat(
        "code", ("question",), ("input_output",), marks=("question", "input_output", "skill_types")
    ),
    "code_contests": DataFormat(
        "code", ("description",), ("public_tests",), marks=("description", "public_tests")
    ),
    "mbpp": DataFormat("code", ("text", "prompt"), ("test_list",), marks=("test_list",)),
    "humaneval": DataFormat("code", ("prompt",), ("test",), marks=("prompt", "test", "entry_point")),
    "numina": DataFormat(
        "math", ("problem",), ("answer", "solution"), marks=("problem", "solution", "source"),
        no_answer=("proof", "notfound"),
    ),
    "deepscaler": DataFormat("math", ("problem",), ("answer",), marks=("problem", "answer")),
    "openrlhf": DataFormat(
        "math", ("input", "context_messages", "prompt"), ("label", "answer"), marks=("label",)
    ),
    "trl": DataFormat("math", ("prompt",), ("solution", "answer", "ground_truth"), marks=("prompt",)),
}.items():  # fmt: skip
    FORMATS.register(_name, _format)


def recognized(columns: Iterable[str], row: dict[str, Any]) -> str | None:
    """Return the name of the format whose columns a row has, preferring the one with most of them.

    None if there is no such format, or the row has nothing at its keys.
    """
    known = tuple(columns)
    forms = {name: FORMATS.get(name) for name in FORMATS.names()}
    fits = [name for name, form in forms.items() if set(form.marks) <= set(known) and _has(form, known, row)]
    return max(fits, key=lambda name: len(forms[name].marks), default=None)


def _has(form: DataFormat, columns: tuple[str, ...], row: dict[str, Any]) -> bool:
    try:
        keys = form.keys("", columns)
    except ConfigError:
        return False
    return all(any(value_at(row, one) is not None for one in key.split("+")) for key in keys)
