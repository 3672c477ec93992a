"""Compares numbers with units, percent signs, and bases."""

from __future__ import annotations

from fractions import Fraction

from gem_envs.graders._equality import same_expressions
from gem_envs.graders._trees import EXPRESSIONS, Tree
from gem_envs.graders._units import UNITS, measure

_NO_UNIT = frozenset(
    (  # noqa: SIM905  # a list of ninety strings is harder to read
        "is are was not no than maybe perhaps wrong incorrect false but never neither nor except without "
        "less fewer least most below under above over minus plus times divided by of to from mod modulo "
        "base squared cubed factorial power root negative percent point halves half third thirds quarter "
        "quarters fourth fourths fifth fifths sixth sixths seventh sevenths eighth eighths ninth ninths "
        "tenth tenths hundredth hundredths thousandth thousandths dozen hundred thousand million billion "
        "trillion hundreds thousands millions billions lakh crore pair pairs score approximately about "
        "roughly around up down before after past ago until since if when unless as like"
    ).split()
)
"""Words that make the text after a number more than its unit."""


def same_units(answer: Tree, reference: Tree) -> bool | None:
    """Return whether the units agree: one is ignored, two must be equal or convertible."""
    (left, unit), (right, other) = (
        (tree[1], tree[2]) if tree[0] == "unit" else (tree, "") for tree in (answer, reference)
    )
    if left[0] not in EXPRESSIONS or right[0] not in EXPRESSIONS:
        return False if "text" in (left[0], right[0]) else None
    if unit.startswith("base ") or other.startswith("base "):
        return _same_in_bases(left, unit, right, other)
    equal = same_expressions(left, right)
    if "%" in (unit, other) and unit != other:
        if "" not in (unit, other):
            return False
        hundredth = ("/", left if unit else right, ("n", Fraction(100), None))
        return equal or same_expressions(hundredth, right if unit else left)
    names = _unit(unit), _unit(other)
    if names[0] == names[1]:
        return equal
    if not unit or not other:
        return False if not equal else None if _means_more(unit or other) else True
    meaning, other_meaning = measure(unit), measure(other)
    if meaning is not None and other_meaning is not None:
        if not meaning.dimensions or not other_meaning.dimensions:  # square units
            return equal
        if meaning.dimensions != other_meaning.dimensions:
            return False
        scale = meaning.size / other_meaning.size
        return same_expressions(("*", ("n", scale, None), left) if scale != 1 else left, right)
    if "degree" in names and all(name.startswith("degree ") or name == "degree" for name in names):
        return equal  # one side does not name its scale
    return False if equal is not None else None


def _means_more(unit: str) -> bool:
    """Return whether the words after a number change its meaning, unlike a unit."""
    words = unit.split()
    if "per" in words:
        words.remove("per")
    return not _NO_UNIT.isdisjoint(words)


def _unit(unit: str) -> str:
    if unit in UNITS:
        return repr(UNITS[unit])
    words = [word.strip(".") for word in unit.split()]
    return " ".join(
        repr(UNITS[w]) if w in UNITS else w[:-1] if len(w) > 3 and w.endswith("s") else w for w in words
    )


def _same_in_bases(left: Tree, unit: str, right: Tree, other: str) -> bool | None:
    """Compare numerals with a base, such as 1010 in base 2, by the numbers that they write."""
    if not unit or not other:
        return False
    values = _numeral(left, unit), _numeral(right, other)
    if values[0] is None or values[1] is None:
        return (unit == other and same_expressions(left, right)) or None
    return same_expressions(values[0], values[1])


def _numeral(tree: Tree, unit: str) -> Tree | None:
    base = unit.removeprefix("base ")
    if tree[0] != "n" or tree[1].denominator != 1 or tree[2] is not None or not base.isdecimal():
        return None
    digits = str(tree[1].numerator)
    if not 2 <= int(base) <= 10 or any(int(digit) >= int(base) for digit in digits):
        return None
    return ("n", Fraction(int(digits, int(base))), None)
