"""Options that several trainers' configs have in common."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

from gem_core.errors import ConfigError
from gem_core.rollout import RowKind
from gem_core.rollout.trajectory import ContextMode

RowOption: TypeAlias = Literal["auto", "episode", "turn"]
"""Rows of a training batch; "auto" takes episode rows where the context allows it."""


def choose_rows(rows: RowOption, context: ContextMode, *, prefix: str = "gem.") -> RowKind:
    """Return the kind of rows that a run trains on.

    Args:
        rows: The option ``rows``.
        context: The option ``context``.
        prefix: What a user writes before the name of an option, for the message.

    Raises:
        ConfigError: Episode rows with a rebuilt context.
    """
    if context == "rebuild" and rows == "episode":
        raise ConfigError(
            f"{prefix}rows=episode needs {prefix}context=append: the turns of a rebuilt context share no "
            "prefix"
        )
    return "turn" if rows == "turn" or context == "rebuild" else "episode"


def read_object(value: str | Mapping[str, Any] | None, option: str) -> dict[str, Any]:
    """Read an option that holds names with values, such as the variables of a chat template.

    Args:
        value: A mapping, or a JSON object as text. None and the empty text are an empty mapping.
        option: What a user writes for it.

    Raises:
        ConfigError: Neither a mapping nor a JSON object.
    """
    try:
        result = json.loads(value or "{}") if isinstance(value, str) else dict(value or {})
    except (TypeError, ValueError):
        result = None
    if not isinstance(result, dict):
        raise ConfigError(f"{option}={value!r}: expected a JSON object")
    return result


def import_modules(names: Iterable[str], option: str) -> None:
    """Import modules of the user's own, such as one that registers environments.

    Args:
        names: Modules to import.
        option: What a user writes for them.

    Raises:
        ConfigError: There is no such module.
    """
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise ConfigError(f"{option} {name}: {error}; is its folder on PYTHONPATH?") from error
