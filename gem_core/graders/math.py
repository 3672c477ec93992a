r"""Grader of mathematical answers: does an answer equal the reference?

    >>> grade(r"\frac{1}{2}", "0.5")
    True

There are three steps, and the first conclusive one decides: the same text or number; the same tree (`latex`
and `values`, tens of microseconds); math-verify, which understands more LaTeX, in a fresh sandboxed process
with a CPU time limit (`symbolic`, milliseconds). Nothing uses a signal, so any thread may call.

These count as equal: a value in any exact form; a decimal that is the reference rounded to at least six
significant digits; an answer with a unit or percent sign that the other side omits (50% is 50 or 0.5);
convertible units; sets and lists in any order, tuples and intervals in the same order; ``x = 5`` and 5.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, NamedTuple

from gem_core.graders.choices import Choice, choice
from gem_core.graders.expressions import Tree
from gem_core.graders.latex import LONGEST, read
from gem_core.graders.layout import tidy
from gem_core.graders.values import same
from gem_core.text import undecorated

_NUMBER = re.compile(r"([+-]?)(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?")
_PROSE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{4,}(?: +[A-Za-z]+){2}")
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{(.*)\}", re.DOTALL)
_RELATION = re.compile(r"\\(?:neq?|not|l[te]q?|g[te]q?|leqslant|geqslant|sim)(?![A-Za-z])|[<>]|!=|=")
_SHORT_WORDS = frozenset(("no", "up", "on", "am", "pm"))
"""Words of two letters that are equal in any case; other short words may be products of variables."""


class MathVerdict(NamedTuple):
    """Result of grading an answer."""

    correct: bool
    by: Literal["text", "tree", "symbolic", "timeout", "unread"]
    """The deciding step; "unread" if no step could read one of the two, which makes the answer wrong."""

    def __bool__(self) -> bool:
        """Return whether the answer is right, although a tuple of two fields would always be true."""
        return self.correct


def grade(answer: str, reference: str, *, symbolic: bool = True) -> bool:
    """Return whether `answer` (the content of the box) is right; see `judge`."""
    return judge(answer, reference, symbolic=symbolic).correct


def judge(answer: str, reference: str, *, symbolic: bool = True) -> MathVerdict:
    r"""Compare an answer with the reference.

    Args:
        answer: Content of the box; a nested box is unwrapped.
        reference: The right answer in LaTeX or plain text; a box around it is unwrapped.
        symbolic: Whether to ask math-verify if the trees are inconclusive.

    Raises:
        MissingDependency: `symbolic` is set, and math-verify is needed but not installed.
    """
    answer, reference = answer.strip(), reference.strip()
    if answer == reference:
        return MathVerdict(bool(answer), "text")
    if len(answer) > LONGEST:
        return MathVerdict(False, "unread")
    number, other = _plain_number(answer), _plain_number(reference)
    if number and other:
        return MathVerdict(number == other, "text")
    target = _reference(reference)
    tidied = tidy(_unboxed(answer))
    if not tidied:
        return MathVerdict(False, "unread")
    if tidied == target.text:
        return MathVerdict(True, "text")
    if target.choice is not None:
        verdict = _same_choice(tidied, target.choice, symbolic)
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
    if tree is not None and target.tree is not None:
        try:
            equal = same(tree, target.tree)
        except RecursionError:  # the caller is already deep in a recursion
            equal = None
        if equal is not None:
            return MathVerdict(equal, "tree")
    if "".join(tidied.split()) == target.packed:
        return MathVerdict(True, "text")
    if not symbolic or not _needs_math_verify(tidied, tree, target):
        return MathVerdict(False, "unread")
    from gem_core.graders import symbolic as math_verify

    equal = math_verify.equal(tidied, target.text)
    return MathVerdict(bool(equal), "timeout" if equal is None else "symbolic")


def _same_choice(answer: str, target: Choice, symbolic: bool) -> MathVerdict | None:
    """Compare with a reference that names an option; None if the answer must be compared as an expression."""
    chosen = choice(answer)
    if chosen is None:
        return judge(answer, target.text, symbolic=symbolic) if target.text else None
    if chosen.letter != target.letter or not (chosen.text and target.text):
        return MathVerdict(chosen.letter == target.letter, "text")
    return judge(chosen.text, target.text, symbolic=symbolic)


def _needs_math_verify(answer: str, tree: Tree | None, target: _Reference) -> bool:
    """Return whether to call math-verify, which misreads broken text and prose."""
    if "\\" not in answer and tree is None and target.tree is not None:
        return False
    balanced = answer.count("{") == answer.count("}") and (
        answer.count("(") + answer.count("[") == answer.count(")") + answer.count("]")
    )
    relation = _RELATION.match(answer) is not None and _RELATION.match(target.text) is None
    return balanced and not relation and "==" not in answer and not _PROSE.search(answer)


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
    packed: str
    """The text without spaces."""
    word: str
    r"""The text without ``\\text{...}`` around it."""
    tree: Tree | None
    choice: Choice | None


@lru_cache(maxsize=4096)  # shared by the samples of a group
def _reference(text: str) -> _Reference:
    tidied = tidy(_unboxed(text))
    return _Reference(tidied, "".join(tidied.split()), undecorated(tidied), read(tidied), choice(tidied))


def _unboxed(text: str) -> str:
    while "boxed" in text or "fbox" in text:
        match = _BOX.fullmatch(text.strip().strip("$").strip())
        if match is None:
            break
        text = match[1]
    return text
