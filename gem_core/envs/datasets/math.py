"""Mathematical problems with one right answer."""

from __future__ import annotations

import base64
from typing import Any

from gem_core.core import Observation
from gem_core.data import Row
from gem_core.envs.datasets.base import DataSetEnv, Graded, references, text_of
from gem_core.errors import DataError
from gem_core.graders import symbolic as symbolic_grader
from gem_core.graders.math import judge
from gem_core.text import last_boxed

_INSTRUCTION = "Give the final answer as \\boxed{answer}."
_MAGIC = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif", b"RIFF": "webp"}


class MathEnv(DataSetEnv):
    r"""Solve a problem.

    Action: the answer in ``\boxed{...}``; the last box counts.

    Rewards: 1 for an answer equal to the reference in the sense of `gem_core.graders.math`, 0 for a wrong
    or missing one. One step. ``info["metrics"]["grader_timeout"]`` is 1 where grading ran out of time,
    which counts as wrong.

    `max_return` is 1 and the oracle, which answers with the reference, reaches it.
    """

    format_error_reward = 0.0

    def __init__(
        self,
        dataset_name: str | None = None,
        split: str | None = None,
        dataset: list[Row] | None = None,
        question_key: str = "problem",
        answer_key: str = "answer",
        image_key: str | None = None,
        subset: str | None = None,
        streaming: bool = False,
        symbolic: bool = True,
    ) -> None:
        """Open the data set.

        Args:
            dataset_name: A parquet, jsonl, json or csv file, a folder of them, or an id of the Hugging Face
                hub.
            split: Part of the data set; None where it has one only.
            dataset: Rows themselves, instead of a name.
            question_key: Column of the problem.
            answer_key: Column of the answer, or of a list of answers any of which is right.
            image_key: Column of the images; None: the problems have none. With images the observation is a
                list of content parts, an image where the problem says ``<image>``.
            subset: Folder within the data set; None where it has one only.
            streaming: Read a hub data set over the network as items are asked for.
            symbolic: Ask math-verify where the built-in comparison cannot tell.

        Raises:
            ConfigError: No such split, subset or column.
            DataError: The data set cannot be found, reached or read.
            MissingDependency: A package for the data or the grading is missing.
        """
        if symbolic:
            symbolic_grader.require()
            self.blocking = True
        self.symbolic = symbolic
        self.keys = question_key, answer_key
        self.image_key = image_key
        columns = {"question_key": question_key, "answer_key": answer_key}
        if image_key is not None:
            columns["image_key"] = image_key
        self.open(dataset_name, dataset, split, subset, streaming, columns)

    def question(self, row: Row) -> Observation:
        problem = text_of(row, self.keys[0], self.rows)
        if self.image_key is None:
            return f"{problem}\n\n{_INSTRUCTION}"
        return _with_images(problem, row.get(self.image_key), self.rows.name)

    parse = staticmethod(last_boxed)

    def grade(self, answer: str, row: Row) -> Graded:
        timeout = 0.0
        for reference in references(row, self.keys[1], self.rows):
            verdict = judge(answer, reference, symbolic=self.symbolic)
            timeout = max(timeout, float(verdict.by == "timeout"))
            if verdict.correct:
                return Graded(1.0, "That is right.")
        return Graded(0.0, "That is not right.", {"grader_timeout": timeout} if self.symbolic else {})

    def right_answer(self, row: Row) -> str:
        return f"\\boxed{{{references(row, self.keys[1], self.rows)[0]}}}"


def _with_images(problem: str, images: Any, name: str) -> list[dict[str, Any]]:
    """Content parts: the text, with an image at each ``<image>`` and those left over in front."""
    pictures = [_picture(image, name) for image in (images if isinstance(images, list) else [images])]
    pieces = problem.split("<image>")
    spare = max(0, len(pictures) - (len(pieces) - 1))
    parts, rest = pictures[:spare], pictures[spare:]
    for number, piece in enumerate(pieces):
        if number and rest:
            parts.append(rest.pop(0))
        if piece.strip():
            parts.append({"type": "text", "text": piece.strip()})
    return [*parts, {"type": "text", "text": _INSTRUCTION}]


def _picture(image: Any, name: str) -> dict[str, Any]:
    """An image as the data URL that OpenAI-style content parts hold."""
    data = image.get("bytes") if isinstance(image, dict) else image
    if isinstance(data, str) and data.startswith("data:image/"):
        return {"type": "image_url", "image_url": {"url": data}}
    if not isinstance(data, bytes):
        raise DataError(f"{name}: an image holds {type(data).__name__} where the bytes of a file are needed")
    kind = next((kind for magic, kind in _MAGIC.items() if data.startswith(magic)), None)
    if kind is None:
        raise DataError(f"{name}: an image is of no known format (png, jpeg, gif, webp)")
    url = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}
