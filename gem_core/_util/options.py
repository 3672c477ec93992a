"""Options declared as the fields of a dataclass: help, bounds, checks, and what a flag or a table needs.

    steps: Annotated[int, "rounds of rollout and update", Bounds(1)] = 120

Help and bounds are written once. A subclass that changes only the type or the default inherits them. An
option without help has no flag.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from gem_core._util.checks import check_choice, check_int, check_number, expected


class Bounds(NamedTuple):
    """Allowed values of a number, as in `check_number`; None means no bound."""

    low: int | None = None
    high: int | None = None
    above: int | None = None


@dataclass(frozen=True)
class Option:
    """One option of a config.

    Attributes:
        name: Name of the field.
        kind: Type of the values other than None, without `Annotated`.
        optional: Whether None is allowed.
        default: Default; None if the field has none.
        help: One line for a user, in lower case; empty for an option without a flag.
        bounds: Allowed values, if `kind` is a number.
        group: Title of the class that declares the option.
    """

    name: str
    kind: Any
    optional: bool
    default: Any
    help: str
    bounds: Bounds
    group: str


def list_options(config: type[Any]) -> tuple[Option, ...]:
    """Return the options of a dataclass, in the order of its fields.

    The attribute `title` of the class that first declares an option names its group.
    """
    if config not in _listed:
        _listed[config] = tuple(_options_of(config))
    return _listed[config]


_listed: dict[type[Any], tuple[Option, ...]] = {}


def _options_of(config: type[Any]) -> Iterator[Option]:
    declared = {
        owner: inspect.get_annotations(owner, eval_str=True)
        for owner in config.__mro__
        if owner is not object
    }
    for item in fields(config):
        kinds, notes, title = [], [], ""
        for owner, types in declared.items():
            if item.name in types:
                kind, *more = _parts(types[item.name])
                kinds.append(kind)
                notes += more
                title = getattr(owner, "title", "")
        union = get_args(kinds[0]) if get_origin(kinds[0]) in (Union, UnionType) else (kinds[0],)
        default = item.default if item.default_factory is MISSING else item.default_factory()
        yield Option(
            item.name,
            next((one for one in union if one is not NoneType), NoneType),
            NoneType in union,
            None if default is MISSING else default,
            next((note for note in notes if isinstance(note, str)), ""),
            next((note for note in notes if isinstance(note, Bounds)), Bounds()),
            title,
        )


def check_options(config: Any, prefix: str = "", declared: type[Any] | None = None) -> None:
    """Check that each option has a value of its type and within its bounds.

    Lists and mappings are left to the config itself.

    Args:
        config: Instance of a dataclass.
        prefix: Text that a user writes before the name of an option, for messages.
        declared: Class whose options are checked; None checks all options of `config`.

    Raises:
        ConfigError: A value is not allowed.
    """
    for option in list_options(declared or type(config)):
        name, value, (low, high, above) = (
            f"{prefix}{option.name}",
            getattr(config, option.name),
            option.bounds,
        )
        check_integer: Callable[..., Any] = check_int
        check_real: Callable[..., Any] = check_number
        if value is None and option.optional:
            continue
        if option.kind is int:
            check_integer(name, value, low, high, optional=option.optional)
        elif option.kind is float:
            check_real(name, value, low, high, above=above, optional=option.optional)
        elif get_origin(option.kind) is Literal:
            check_choice(name, value, get_args(option.kind), optional=option.optional)
        elif option.kind in _TEXTS and not isinstance(value, option.kind):
            raise expected(name, value, _TEXTS[option.kind], option.optional)


_TEXTS = {bool: "true or false", str: "text"}


def _parts(annotation: Any) -> tuple[Any, ...]:
    """Return the type of an annotation, and what `Annotated` adds to it."""
    return get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
