"""Checks of arguments and options, with messages of one form: ``name=value: expected ...``.

    self.max_turns = check_int("max_turns", max_turns, 1)
    self.decay = check_number("decay", decay, 0, 1)

Each check returns the value or raises a `ConfigError`. A bool is not a number here. Include the prefix that
users write before an option in the name: ``check_int("--gem.max_turns", ...)``.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Collection, Iterable
from typing import Any, Literal, TypeVar, overload

from gem_core._util import messages
from gem_core.errors import ConfigError

T = TypeVar("T")


@overload
def check_int(
    name: str, value: object, low: int | None = ..., high: int | None = ..., *,
    optional: Literal[False] = ...,
) -> int: ...  # fmt: skip


@overload
def check_int(
    name: str, value: object, low: int | None = ..., high: int | None = ..., *,
    optional: Literal[True],
) -> int | None: ...  # fmt: skip


def check_int(
    name: str, value: Any, low: int | None = None, high: int | None = None, *, optional: bool = False
) -> int | None:
    """Check for a whole number.

    Args:
        name: Name of the argument, for the message.
        value: Value to check: an int, or a numpy integer, which is converted.
        low: Smallest allowed value; None means no bound.
        high: Largest allowed value; None means no bound.
        optional: Whether None is allowed.

    Returns:
        The value as an int, or None.

    Raises:
        ConfigError: The value is anything else.
    """
    if value is None and optional:
        return None
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or (low is not None and number < low) or (high is not None and number > high):
        raise expected(name, value, f"a whole number{_bounds(low, high)}", optional)
    return number


@overload
def check_number(
    name: str, value: object, low: float | None = ..., high: float | None = ..., *,
    above: float | None = ..., optional: Literal[False] = ...,
) -> float: ...  # fmt: skip


@overload
def check_number(
    name: str, value: object, low: float | None = ..., high: float | None = ..., *,
    above: float | None = ..., optional: Literal[True],
) -> float | None: ...  # fmt: skip


def check_number(
    name: str, value: Any, low: float | None = None, high: float | None = None, *,
    above: float | None = None, optional: bool = False,
) -> float | None:  # fmt: skip
    """Check for a finite number.

    Args:
        name: Name of the argument, for the message.
        value: Value to check: an int or a float.
        low: Smallest allowed value; None means no bound.
        high: Largest allowed value; None means no bound.
        above: Exclusive lower bound, as an alternative to `low`; None means no bound.
        optional: Whether None is allowed.

    Returns:
        The value, unchanged.

    Raises:
        ConfigError: The value is anything else, such as infinity or NaN.
    """
    if value is None and optional:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if (
        not number
        or not math.isfinite(value)
        or (low is not None and value < low)
        or (above is not None and value <= above)
        or (high is not None and value > high)
    ):
        kind = "a finite number" if number and not math.isfinite(value) else "a number"
        bounds = _bounds(low, high)
        if above is not None:
            bounds = f" above {above}" + ("" if high is None else f" and up to {high}")
        raise expected(name, value, kind + bounds, optional)
    checked: float = value
    return checked


def check_choice(name: str, value: T, choices: Collection[Any], *, optional: bool = False) -> T:
    """Check that a value is one of `choices`; with `optional`, None is allowed as well.

    Raises:
        ConfigError: The value is not one of them.
    """
    if not (value is None and optional) and value not in choices:
        raise expected(name, value, messages.join_or(map(str, choices)), optional)
    return value


def check_names(
    names: Iterable[object],
    known: Collection[str],
    *,
    kind: str = "option",
    owner: str = "",
    prefix: str = "",
) -> None:
    """Check that all `names` are known.

    Args:
        names: Names to check, such as the keys of a section of a config.
        known: The names that exist.
        kind: Kind of the names, for the message.
        owner: Owner of the known names, for the message.
        prefix: Text that a user writes before each name, for the message.

    Raises:
        ConfigError: A name is unknown; the message holds the closest ones and all known ones.
    """
    for name in names:
        if name not in known:
            raise ConfigError(messages.unknown(kind, str(name), known, owner=owner, prefix=prefix))


def defaults(config: type[Any]) -> dict[str, Any]:
    """Return the default of each field of a dataclass that has one."""
    return {
        item.name: item.default if item.default_factory is dataclasses.MISSING else item.default_factory()
        for item in dataclasses.fields(config)
        if not item.default is item.default_factory is dataclasses.MISSING
    }


def expected(name: str, value: object, what: str, optional: bool = False) -> ConfigError:
    """Return the error for a check that this module does not provide.

        if not url.startswith("https://"):
            raise expected("url", url, "an https address")

    Args:
        name: Name of the argument, for the message.
        value: The rejected value.
        what: Description of the allowed values.
        optional: Whether None is allowed.
    """
    given = " ".join(map(str.strip, repr(value).splitlines()))
    return ConfigError(f"{name}={given:.200}: expected {what}{', or None' if optional else ''}")


def _bounds(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f" from {low} to {high}"
    if low is not None:
        return f" of at least {low}"
    return "" if high is None else f" of at most {high}"
