"""Comparison of what a program wrote, or a function returned, with what is expected, by a dataset's rule.

| rule | data | spacing that does not count | letter case | numbers may differ by |
|---|---|---|---|---|
| ``lines`` | GEM's, your own | at line ends, within lines of numbers | counts | 1e-6, or 1e-6 of the value |
| ``apps``, ``taco`` | APPS, TACO | within lines, and empty lines | counts | 1e-6, or 1e-5 of the value |
| ``livecodebench`` | LiveCodeBench | around lines, and within lines of numbers | counts | nothing |
| ``code_contests`` | code_contests | any, line breaks included | does not count | 1e-5 |

A rule also says how a program that reads and writes may end, and which names it need not import:

| rule | right output counts after | names |
|---|---|---|
| ``lines``, ``taco`` | exit status 0 | none (``lines``); those of the grader of TACO |
| ``apps``, ``livecodebench`` | also after `sys.exit` with another status | those of their graders |
| ``code_contests`` | any exit status, after an exception as well | none |

A number is compared by value if one side is written as a fraction (``2`` and ``2.0``, ``0.5`` and ``5e-1``);
two whole numbers are compared digit by digit, as are all other words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Context, Decimal
from math import isfinite
from typing import Any, Literal, NamedTuple

from gem_core._util import foreign_json
from gem_core._util.checks import check_choice
from gem_envs.graders._supplied import Names

RuleName = Literal["lines", "apps", "taco", "livecodebench", "code_contests"]
SET = "gem-core:set"
"""Key of the object that stands for a set in the JSON of a result."""
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,5})?")
_WHOLE = re.compile(r"[+-]?[0-9]+")
_MOST_DIGITS = 4000
"""Number of digits up to which Python converts whole numbers by default."""
_SPACING = re.compile(r"(\s+)")
_WHOLE_TOLERANCE = Decimal("1e-5")


class Digits(str):
    """A whole number with more digits than Python converts by default."""

    __slots__ = ()


class OutputRule(NamedTuple):
    """How outputs are compared."""

    name: RuleName
    spacing: Literal["numbers", "trimmed", "lines", "none"]
    """Where spacing does not matter: in lines of numbers, there and around all lines, within all lines, or
    anywhere, line breaks included."""
    lower: bool
    """Whether letter case does not matter."""
    absolute: Decimal
    relative: Decimal
    exit: Literal["zero", "call", "any"]
    """How a program with the right output may end: with the status 0, also by a call of `sys.exit` with
    another one, or with any status."""
    names: Names
    """Whose names a program need not import (`gem_envs.graders._supplied`)."""

    @property
    def exact(self) -> bool:
        """Whether numbers must have the same value."""
        return not self.absolute and not self.relative


RULES: dict[RuleName, OutputRule] = {
    rule.name: rule
    for rule in (
        OutputRule("lines", "numbers", False, Decimal("1e-6"), Decimal("1e-6"), "zero", "none"),
        OutputRule("apps", "lines", False, Decimal("1e-6"), Decimal("1e-5"), "call", "apps"),
        OutputRule("taco", "lines", False, Decimal("1e-6"), Decimal("1e-5"), "zero", "apps"),
        OutputRule("livecodebench", "trimmed", False, Decimal(0), Decimal(0), "call", "livecodebench"),
        OutputRule("code_contests", "none", True, Decimal("1e-5"), Decimal(0), "any", "none"),
    )
}


def rule_named(name: str) -> OutputRule:
    """Return a rule by its name.

    Raises:
        ConfigError: There is no such rule.
    """
    check_choice("compare", name, tuple(RULES))
    return RULES[name]  # type: ignore[index]


def same_output(output: str, expected: str, rule: OutputRule) -> bool:
    """Return whether an output agrees with the expected one."""
    if rule.lower:
        output, expected = output.lower(), expected.lower()
    ours, theirs = _parts(output, rule), _parts(expected, rule)
    return len(ours) == len(theirs) and all(
        mine == yours or _same_line(mine, yours, rule) for mine, yours in zip(ours, theirs, strict=True)
    )


def same_value(value: Any, expected: Any, rule: OutputRule) -> bool:
    """Return whether the result of a function, read from JSON, agrees with the expected one."""
    if isinstance(value, dict) and SET in value:  # a set has no order
        if not (isinstance(expected, list) and isinstance(value[SET], list)):
            return False
        value, expected = sorted(value[SET], key=_order), sorted(expected, key=_order)
    if isinstance(value, list) and isinstance(expected, list):
        return len(value) == len(expected) and all(
            same_value(mine, yours, rule) for mine, yours in zip(value, expected, strict=True)
        )
    if isinstance(value, dict) and isinstance(expected, Mapping):
        return value.keys() == expected.keys() and all(
            same_value(value[key], expected[key], rule) for key in value
        )
    if value == expected:
        return True
    if not (_is_number(value) and _is_number(expected)) or type(value) is type(expected) is int:
        return False
    if not (_is_finite(value) and _is_finite(expected)):
        return bool(value != value and expected != expected)  # both are NaN
    return _close(Decimal(value), Decimal(expected), rule, isinstance(expected, int))


def read_json(text: str | bytes) -> Any:
    """Read JSON; whole numbers of any length are accepted, very long ones as `Digits`.

    Raises:
        ValueError: The text is not JSON, or too deep.
    """
    return foreign_json.read_json(text, long_integer=_long_integer)


def _long_integer(digits: str) -> int | Digits:
    return int(digits) if len(digits) <= _MOST_DIGITS else Digits(digits)


def write_json(value: Any) -> str:
    """Return JSON that `read_json` reads.

    Raises:
        TypeError: The value is not one of JSON.
    """
    if isinstance(value, Digits):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(str(key))}: {write_json(v)}" for key, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(write_json, value)) + "]"
    return json.dumps(value)


def _parts(text: str, rule: OutputRule) -> list[list[str]]:
    """Return the parts of each line that are compared; without the spacing that does not matter."""
    if rule.spacing == "none":
        return [text.split()]
    lines = [line.rstrip() if rule.spacing == "numbers" else line.strip() for line in text.splitlines()]
    if rule.spacing == "lines":
        return [line.split() for line in lines if line]
    while lines and not lines[-1]:
        lines.pop()
    start = next((index for index, line in enumerate(lines) if line), 0)
    return [_line_parts(line) for line in lines[start:]]


def _line_parts(line: str) -> list[str]:
    words = line.split()
    return words if all(map(_NUMBER.fullmatch, words)) else _SPACING.split(line)


def _same_line(ours: list[str], theirs: list[str], rule: OutputRule) -> bool:
    if len(ours) != len(theirs):
        return False
    if rule.exact and not all(map(_NUMBER.fullmatch, theirs)):
        return ours == theirs
    return all(
        mine == yours or _same_number(mine, yours, rule) for mine, yours in zip(ours, theirs, strict=True)
    )


def _same_number(ours: str, theirs: str, rule: OutputRule) -> bool:
    whole = _WHOLE.fullmatch(theirs) is not None
    if not (_NUMBER.fullmatch(ours) and _NUMBER.fullmatch(theirs)) or (whole and _WHOLE.fullmatch(ours)):
        return False
    return _close(Decimal(ours), Decimal(theirs), rule, whole)


def _close(ours: Decimal, theirs: Decimal, rule: OutputRule, whole: bool) -> bool:
    """Return whether two numbers are close enough; `whole`: whether a whole number is expected."""
    digits = len(ours.as_tuple().digits) + len(theirs.as_tuple().digits)
    exact = Context(prec=digits + 20)
    apart = exact.abs(exact.subtract(ours, theirs))
    if rule.exact:
        return not apart
    if whole:
        return apart <= _WHOLE_TOLERANCE
    return apart <= exact.add(rule.absolute, exact.multiply(rule.relative, exact.abs(theirs)))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_finite(value: int | float) -> bool:
    return isinstance(value, int) or isfinite(value)


def _order(value: Any) -> tuple[str, str]:
    return type(value).__name__, write_json(value)
