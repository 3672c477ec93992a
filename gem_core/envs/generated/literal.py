"""Problems whose answer must be a number in digits."""

from __future__ import annotations

from gem_core.data import Row
from gem_core.envs.datasets.base import Graded, references
from gem_core.envs.datasets.math import MathEnv
from gem_core.graders.latex import read
from gem_core.graders.layout import tidy
from gem_core.graders.math import judge


class LiteralEnv(MathEnv):
    r"""A problem that asks for a number. An expression with the same value is not accepted: ``17 + 4``,
    ``\frac{42}{2}``, and ``\sqrt{441}`` earn nothing if 21 is right, because otherwise the question itself
    would be an answer. A sign, decimals, thousands separators, a unit, and a name in front (``x = 21``) are
    allowed.
    """

    instruction = "Give the final answer as \\boxed{number}, for example \\boxed{12345}."

    def grade(self, answer: str, row: Row) -> Graded:
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
