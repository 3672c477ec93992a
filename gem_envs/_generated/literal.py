"""Problems whose answer must be a number in digits."""

from __future__ import annotations

import re

from gem_envs._text import boxed_answer
from gem_envs.data._rows import DataRow
from gem_envs.datasets._base import Graded, references
from gem_envs.datasets._math import MathEnv
from gem_envs.graders._latex import read
from gem_envs.graders._layout import tidy
from gem_envs.graders.math import judge

_PLAIN = re.compile(r"-?\d{1,300}", re.ASCII)
"""A whole number without separators."""


class LiteralEnv(MathEnv):
    r"""A problem that asks for a number. An expression with the same value is not accepted: ``17 + 4``,
    ``\frac{42}{2}``, and ``\sqrt{441}`` earn nothing if 21 is right, because otherwise the question itself
    would be an answer. A sign, decimals, thousands separators, a unit, and a name in front (``x = 21``) are
    allowed.
    """

    instruction = "Give the final answer as \\boxed{number}, for example \\boxed{12345}."

    def second_answer(self) -> int | None:
        """Return the answer that follows from what the episode shows; None if there is not exactly one."""
        raise NotImplementedError

    def verify(self, action: str) -> bool | None:
        """Return whether the number in the box is `second_answer`; None for a box without plain digits."""
        self._require_running("verify")
        answer = boxed_answer(action)
        if answer is None or not _PLAIN.fullmatch(answer):
            return None
        return int(answer) == self.second_answer()

    def grade(self, answer: str, row: DataRow) -> Graded:
        verdict = judge(answer, references(row, self.keys[1], self.rows)[0], symbolic=False)
        if verdict.correct and (verdict.by == "text" or is_number(answer)):
            return Graded(1.0, "That is right.")
        return Graded(0.0, "That is not right.")


def is_number(answer: str) -> bool:
    """Return whether the answer is one number in digits, rather than an expression."""
    tree = read(tidy(answer))
    if tree is not None and tree[0] == "rel":
        names, value = tree[1][:-1], tree[1][-1]
        tree = value if all(name[0] == "v" for name in names) else None
    for wrapping in ("unit", "-"):
        if tree is not None and tree[0] == wrapping:
            tree = tree[1]
    return tree is not None and tree[0] == "n"
