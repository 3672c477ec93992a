"""Items of propositional_logic that no fixed conclusion solves, and the scorer of their answers.

The package accepts any conclusion that is not a tautology. A weak one, such as ``P or Q``, follows from most
of its items, and anything follows from premises that contradict each other, which a quarter of its items do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import combinations, count
from typing import Any

from reasoning_gym.logic.propositional_logic import Expression, Operator, PropositionalLogicDataset

from gem_core._util.seeds import derive_rng
from gem_envs.data._rows import DataRow

_LETTERS = "CDEFGHIJKLMNOPQRSTUVWXYZ"
"""Names of variables; the example in the prompt uses the others."""
_STRIDE = 2**31
"""Distance between the seeds that are tried for one item, larger than the seeds of all other items."""
_MOST_DRAWS = 1000
_RULE = (
    "\nAnswer with one letter, or with two letters joined by OR or IMPLIES; each letter may be negated. The"
    " conclusion has to follow from the premises together, but not from any one of them alone."
)
_LITERAL = r"(¬*)([A-Z])"
_JOINING = Operator.OR.value + Operator.IMPLIES.value
_CONCLUSION = re.compile(rf"{_LITERAL}(?:([{_JOINING}]){_LITERAL})?")


class Conclusions(PropositionalLogicDataset):  # type: ignore[misc]
    """The package's dataset, with other items.

    An item is drawn again until its premises are consistent and have a conclusion that follows from them
    together but from none of them alone. The variables get random letters, and each is negated everywhere or
    nowhere, so that all conclusions of one form are equally frequent.
    """

    def __getitem__(self, idx: int) -> dict[str, Any]:
        """Return item `idx`.

        Raises:
            ValueError: No suitable item was found, for instance because there is only one premise.
        """
        for draw in range(_MOST_DRAWS):
            item: dict[str, Any] = super().__getitem__(idx + draw * _STRIDE)
            random = derive_rng(self.seed, "letters", idx)
            metadata = item["metadata"]
            old, new = metadata["variables"], random.sample(_LETTERS, len(metadata["variables"]))
            signed = {a: random.choice(("", "¬")) + b for a, b in zip(old, new, strict=True)}
            premises = [_renamed(premise, signed) for premise in metadata["premises"]]
            new = sorted(letter for letter in new if any(letter in premise for premise in premises))
            conclusions = list(_conclusions(premises, new))
            if not conclusions:
                continue
            example = random.choice(conclusions)
            head, _, statements = item["question"].partition("Given:\n")
            item["question"] = f"{head}Given:\n{_renamed(statements, signed)}{_RULE}"
            metadata |= {
                "source_index": idx,
                "premises": premises,
                "variables": new,
                "complexity": self._measure_complexity(Expression.from_string(example)),
                "example_answer": example,
            }
            return item
        raise ValueError("none of the items that these settings give needs two premises for a conclusion")


def is_conclusion(answer: str, row: DataRow) -> bool:
    """Return whether an answer has the form that the prompt asks for, and needs several premises."""
    metadata = row["metadata"]
    tables = _Tables(metadata["variables"])
    return tables.new(
        answer, [tables.of(Expression.from_string(premise)) for premise in metadata["premises"]]
    )


def _renamed(text: str, signed: dict[str, str]) -> str:
    renamed = re.sub(rf"\b[{''.join(signed)}]\b", lambda match: signed[match[0]], text)
    return renamed.replace("¬¬", "")


def _conclusions(premises: Sequence[str], letters: Sequence[str]) -> Iterator[str]:
    """Yield the conclusions of consistent premises; those from two letters are in brackets."""
    tables = _Tables(letters)
    values = tables.from_texts(premises)
    if not tables.all_of(values):
        return
    literals = [sign + letter for letter in letters for sign in ("", "¬")]
    pairs = combinations(literals, 2)
    joined = (f"({a} {operator} {b})" for a, b in pairs for operator in _JOINING)
    yield from (text for text in (*literals, *joined) if tables.new(text, values))


class _Tables:
    """Truth tables as integers with one bit per assignment of truth values to the letters."""

    def __init__(self, letters: Sequence[str]) -> None:
        self.full = (1 << (1 << len(letters))) - 1
        self.letters = {
            letter: self.full // ((1 << (1 << place)) + 1) for place, letter in zip(count(), letters)
        }

    def from_texts(self, formulas: Sequence[str]) -> list[int]:
        """Return the table of each formula."""
        return [self.of(Expression.from_string(formula)) for formula in formulas]

    def of(self, formula: Expression) -> int:
        """Return the table of a formula of the package."""
        if formula.operator is None:
            return self.letters[formula.left]
        left = self.of(formula.left)
        if formula.operator == Operator.NOT:
            return self.full ^ left
        return self.joined(left, formula.operator, self.of(formula.right))

    def joined(self, left: int, operator: str, right: int) -> int:
        """Return the table of two formulas joined by an operator."""
        if operator == Operator.AND:
            return left & right
        if operator == Operator.OR:
            return left | right
        return (self.full ^ left) | right if operator == Operator.IMPLIES else self.full ^ left ^ right

    def all_of(self, tables: Sequence[int]) -> int:
        """Return the table of a conjunction."""
        table = self.full
        for one in tables:
            table &= one
        return table

    def new(self, text: str, premises: Sequence[int]) -> bool:
        """Return whether a conclusion follows from all premises together and from none alone."""
        plain = "".join(text.split())
        while plain.startswith("(") and plain.endswith(")"):
            plain = plain[1:-1]
        match = _CONCLUSION.fullmatch(plain)
        if match is None or any(letter not in self.letters for letter in match.group(2, 5) if letter):
            return False
        value = self._literal(*match.group(1, 2))
        if match[3]:
            value = self.joined(value, match[3], self._literal(*match.group(4, 5)))
        return not self.all_of(premises) & ~value and all(premise & ~value for premise in premises)

    def _literal(self, signs: str, letter: str) -> int:
        return self.letters[letter] ^ (self.full if len(signs) % 2 else 0)
