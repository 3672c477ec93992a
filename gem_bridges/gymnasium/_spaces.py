"""Spaces of Gymnasium: their values as JSON and text, and the space of all texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from gem_bridges._foreign import json_value
from gem_core.errors import ConfigError

DIGITS = 6
"""Number of decimals in the text of an array."""
LARGEST = 1000
"""Maximum number of values in an array that is shown as text."""


class TextSpace(spaces.Text):
    """The space of all texts; `gymnasium.spaces.Text` holds only alphanumeric ones by default.

    Args:
        sample: Function that returns a text; None samples "".
    """

    def __init__(self, sample: Callable[[], str] | None = None) -> None:
        super().__init__(max_length=1 << 30, min_length=0)
        self._sample_text = sample

    def contains(self, x: Any) -> bool:
        """Return whether `x` is a str."""
        return isinstance(x, str)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Return a text; both arguments are ignored, because no mask describes texts."""
        return "" if self._sample_text is None else self._sample_text()

    def __repr__(self) -> str:
        return "TextSpace()"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TextSpace)

    __hash__ = None  # type: ignore[assignment]  # as in `spaces.Text`


def action_schema(space: spaces.Space[Any]) -> dict[str, Any]:
    """Return the JSON schema of the values of a space.

    Raises:
        ConfigError: The space has no JSON form.
    """
    if isinstance(space, spaces.Discrete):
        return {"type": "integer", "minimum": int(space.start), "maximum": int(space.start + space.n) - 1}
    if isinstance(space, spaces.MultiDiscrete):
        last = space.start + space.nvec - 1
        return _array(space.shape, "integer", int(space.start.min()), int(last.max()))
    if isinstance(space, spaces.MultiBinary):
        return _array(space.shape, "integer", 0, 1)
    if isinstance(space, spaces.Box):
        kind = "integer" if np.issubdtype(space.dtype, np.integer) else "number"
        return _array(space.shape, kind, json_value(space.low.min()), json_value(space.high.max()))
    if isinstance(space, spaces.Text):
        return {"type": "string"}
    if isinstance(space, spaces.Dict):
        fields = {name: action_schema(item) for name, item in space.items()}
        return {
            "type": "object", "properties": fields, "required": list(fields), "additionalProperties": False,
        }  # fmt: skip
    raise ConfigError(f"actions from {space!r:.200} have no text form; give to_action='module:function'")


def from_json(value: Any, space: spaces.Space[Any]) -> Any:
    """Convert a value that `action_schema` describes to a value of the space, but maybe out of bounds."""
    if isinstance(space, spaces.Dict):
        return {name: from_json(value[name], item) for name, item in space.items()}
    if isinstance(space, spaces.Discrete | spaces.Text):
        return value
    return np.asarray(value, dtype=space.dtype).reshape(space.shape)


def space_text(value: Any) -> str:
    """Return an observation as text: numbers with six decimals, one line per row of an array.

    Raises:
        ConfigError: The observation has an array of more than 1,000 values, such as an image.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "\n".join(f"{name}: {space_text(item)}" for name, item in value.items())
    if isinstance(value, tuple):
        return f"({', '.join(map(space_text, value))})"
    if isinstance(value, np.ndarray) and value.ndim > 1:
        _check_size(value)
        return "\n".join(space_text(row) for row in value.reshape(-1, value.shape[-1]))
    if isinstance(value, np.ndarray):
        _check_size(value)
        return f"[{', '.join(map(_number, value.tolist()))}]" if value.ndim else _number(value.item())
    return _number(json_value(value))


def _check_size(value: np.ndarray[Any, Any]) -> None:
    if value.size > LARGEST:
        raise ConfigError(
            f"the observation is an array of shape {value.shape}, too large to be shown as text; give "
            "to_text='module:function'"
        )


def _number(value: Any) -> str:
    return f"{value:.{DIGITS}f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _array(shape: tuple[int, ...], kind: str, low: Any, high: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": kind}
    schema |= {} if low is None else {"minimum": low}
    schema |= {} if high is None else {"maximum": high}
    for length in reversed(shape):
        schema = {"type": "array", "items": schema, "minItems": length, "maxItems": length}
    return schema
