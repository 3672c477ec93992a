r"""Grader of mathematical answers: does an answer equal the reference?

    >>> grade(r"\frac{1}{2}", "0.5")
    True

There are four steps, and the first conclusive one decides: the same text or number; the same tree (`latex`
and `values`, tens of microseconds); the same symbols, with equal expressions between them (`spelling`); the
values of sums, integrals, and limits by math-verify, in a fresh sandboxed process with a CPU time limit
(`symbolic`, milliseconds). A step reads both texts to the last symbol before it says that they are equal.
If no step is conclusive, the verdict is "undecided", which pays nothing. Nothing uses a signal, so any
thread may call.

These count as equal: a value in any exact form; a decimal that is the reference correctly rounded to at
least six significant digits, or to the digits of a reference that is declared as rounded; an answer with a
unit or percent sign that the other side omits (50% is 50 or 0.5); convertible units; sets and lists in any
order, tuples and intervals in the same order; ``x = 5`` and 5; a solution with another integer parameter.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, NamedTuple

from gem_core._util.checks import expected
from gem_envs._text import undecorated
from gem_envs.graders._choices import ChosenOption, choice
from gem_envs.graders._equality import marked_as_rounded
from gem_envs.graders._latex import LONGEST, read
from gem_envs.graders._layout import tidy
from gem_envs.graders._spelling import same_spelling
from gem_envs.graders._tokens import Unreadable
from gem_envs.graders._trees import Tree
from gem_envs.graders._values import same

_NUMBER = re.compile(r"([+-]?)(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?")
_CROSS = re.compile(r"[A-Za-z}]\s*\\times\s*\\?[A-Za-z]")
_DOT = re.compile(r"[A-Za-z}]\s*\\cdot\s*\\?[A-Za-z]")
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{(.*)\}", re.DOTALL)
_SHORT_WORDS = frozenset(("no", "up", "on", "am", "pm"))
"""Words of two letters that are equal in any case; other short words may be products of variables."""


class MathVerdict(NamedTuple):
    """Result of grading an answer."""

    correct: bool
    by: Literal["text", "tree", "spelling", "symbolic", "timeout", "undecided"]
    """The deciding step; "timeout" and "undecided" if no step could tell, which pays nothing."""

    @property
    def decided(self) -> bool:
        """Whether a step reached a verdict."""
        return self.by not in ("timeout", "undecided")

    def __bool__(self) -> bool:
        """Return whether the answer is right, although a tuple of two fields would always be true."""
        return self.correct


def grade(answer: str, reference: str, *, symbolic: bool = True, rounded: bool = False) -> bool:
    """Return whether `answer` (the content of the box) is right; see `judge`."""
    return judge(answer, reference, symbolic=symbolic, rounded=rounded).correct


def judge(answer: str, reference: str, *, symbolic: bool = True, rounded: bool = False) -> MathVerdict:
    r"""Compare an answer with the reference.

    Args:
        answer: Content of the box; a nested box is unwrapped.
        reference: The right answer in LaTeX or plain text; a box around it is unwrapped.
        symbolic: Whether to ask math-verify for the values of sums, integrals, and limits.
        rounded: Whether decimals of the reference are rounded: an answer is right if it is equal to the
            reference after rounding to its decimals, so that 3.14159 and ``\\pi`` match 3.14.

    Raises:
        ConfigError: `answer` or `reference` is not a text.
        MissingDependency: `symbolic` is set, and math-verify is needed but not installed.
    """
    for name, text in (("answer", answer), ("reference", reference)):
        if not isinstance(text, str):
            raise expected(name, text, "a text in LaTeX or plain")
    answer, reference = answer.strip(), reference.strip()
    if answer == reference:
        return MathVerdict(bool(answer), "text" if answer else "undecided")
    if len(answer) > LONGEST:
        return _UNDECIDED
    number, other = _plain_number(answer), _plain_number(reference)
    if number and other and not (rounded and "." in other):
        return MathVerdict(number == other, "text")
    target = _reference(reference, rounded)
    tidied = tidy(_unboxed(answer))
    if not tidied:
        return _UNDECIDED
    if tidied == target.text:
        return MathVerdict(True, "text")
    if target.choice is not None:
        verdict = _same_choice(tidied, target.choice, symbolic, rounded)
        if verdict is not None:
            return verdict
    word = undecorated(tidied)
    if word == target.word:
        return MathVerdict(True, "text")
    if len(word) > 1 and word.isalpha() and target.word.isalpha():
        if word.casefold() in _SHORT_WORDS and word.casefold() == target.word.casefold():
            return MathVerdict(True, "text")
        if word.isupper() and target.word.isupper():  # II and IV, or names of points: never products
            return MathVerdict(False, "text")
    tree = read(tidied)
    try:
        if tree is not None and target.tree is not None and not _dot_and_cross(tidied, target.text):
            equal = same(tree, target.tree)
            if equal is not None:
                return MathVerdict(equal, "tree")
        if same_spelling(tidied, target.text):
            return MathVerdict(True, "spelling")
        if symbolic and tree is not None and target.tree is not None:
            return _by_values(tree, target.tree)
    except (
        RecursionError,
        Unreadable,
    ):  # the caller is deep in a recursion
        return _UNDECIDED
    return _UNDECIDED


def _dot_and_cross(answer: str, reference: str) -> bool:
    """Return whether one text may have a dot product of letters, and the other a cross product."""
    if "\\times" not in answer and "\\times" not in reference:
        return False
    pairs = (answer, reference), (reference, answer)
    return any(_CROSS.search(one) and _DOT.search(other) for one, other in pairs)


_UNDECIDED = MathVerdict(False, "undecided")


def _by_values(answer: Tree, reference: Tree) -> MathVerdict:
    """Compare the values of sums, integrals, and limits."""
    from gem_envs.graders import _symbolic as math_verify

    if not math_verify.has_operators(answer) and not math_verify.has_operators(reference):
        return _UNDECIDED
    try:
        trees = math_verify.evaluated(answer), math_verify.evaluated(reference)
    except math_verify.OutOfTime:
        return MathVerdict(False, "timeout")
    if trees[0] is None or trees[1] is None:
        return _UNDECIDED
    equal = same(trees[0], trees[1])
    return _UNDECIDED if equal is None else MathVerdict(equal, "symbolic")


def _same_choice(answer: str, target: ChosenOption, symbolic: bool, rounded: bool) -> MathVerdict | None:
    """Compare with a reference that names an option; None if the answer must be compared as an expression."""
    chosen = choice(answer)
    if chosen is None:
        return judge(answer, target.text, symbolic=symbolic, rounded=rounded) if target.text else None
    if chosen.letter != target.letter or not (chosen.text and target.text):
        return MathVerdict(chosen.letter == target.letter, "text")
    return judge(chosen.text, target.text, symbolic=symbolic, rounded=rounded)


def _plain_number(text: str) -> str:
    """Return a number in digits in its unique shortest form; empty for anything else."""
    if text.isdigit() and text.isascii():
        return text.lstrip("0") or "0"
    match = _NUMBER.fullmatch(text)
    if match is None:
        return ""
    whole, fraction = match[2].lstrip("0"), (match[3] or "").rstrip("0")
    return (
        ("-" if match[1] == "-" and (whole or fraction) else "")
        + (whole or "0")
        + ("." + fraction if fraction else "")
    )


class _Reference(NamedTuple):
    text: str
    word: str
    r"""The text without ``\\text{...}`` around it."""
    tree: Tree | None
    choice: ChosenOption | None


@lru_cache(maxsize=4096)  # shared by the samples of a group
def _reference(text: str, rounded: bool) -> _Reference:
    tidied = tidy(_unboxed(text))
    tree = read(tidied)
    if rounded and tree is not None:
        tree = marked_as_rounded(tree)
    return _Reference(tidied, undecorated(tidied), tree, choice(tidied))


def _unboxed(text: str) -> str:
    while "boxed" in text or "fbox" in text:
        match = _BOX.fullmatch(text.strip().strip("$").strip())
        if match is None:
            break
        text = match[1]
    return text
