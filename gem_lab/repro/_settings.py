"""A trainer's settings for a recipe, as a data file next to the plugin's module."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gem_lab.repro._recipe import Recipe

_PLACEHOLDER = re.compile(r"\$([a-z_][a-z0-9_]*)")


def read_settings(path: str | Path, recipe: Recipe, **values: Any) -> dict[str, Any]:
    """Read a JSON file of settings, and fill in the values of a recipe.

        {"actor.clip": 0.2, "actor.lr": "$learning_rate", "+gem.*": "$rollout_options"}

    A value ``"$name"`` stands for one of `values`, or else for the attribute of the recipe, or the result of
    its method. A key that ends with ``*`` adds each item of a mapping, with the rest of the key as prefix.
    Keys may contain placeholders of strings, and nested objects may contain both.

    Args:
        path: Path of the file.
        recipe: Recipe to convert.
        values: Maps placeholders to values that the recipe does not have.

    Returns:
        The settings in the order of the file.

    Raises:
        AttributeError: The recipe does not have a placeholder's value.
    """

    def value_of(name: str) -> Any:
        if name in values:
            return values[name]
        value = getattr(recipe, name)
        return value() if callable(value) else value

    def fill(item: Any) -> Any:
        if isinstance(item, Mapping):
            filled: dict[str, Any] = {}
            for key, value in item.items():
                name = _PLACEHOLDER.sub(lambda match: str(value_of(match[1])), key)
                if name.endswith("*"):
                    filled |= {f"{name[:-1]}{inner}": part for inner, part in fill(value).items()}
                else:
                    filled[name] = fill(value)
            return filled
        if isinstance(item, list):
            return [fill(part) for part in item]
        match = _PLACEHOLDER.fullmatch(item) if isinstance(item, str) else None
        return copy.deepcopy(value_of(match[1])) if match else item  # equal parts stay separate in YAML

    settings: dict[str, Any] = fill(json.loads(Path(path).read_text(encoding="utf-8")))
    return settings
