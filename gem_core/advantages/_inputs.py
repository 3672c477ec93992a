"""Checks of the arguments of estimators: episodes, ids, and numbers. Requires numpy only.

Ids are compared by value: a tensor, an array, and a list of their elements mean the same ids. A value that
Python compares by identity, or that differs from itself, is an error, because every episode would be its own
group.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Hashable, Iterable, Sequence
from enum import Enum
from numbers import Integral, Number
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gem_core._util.checks import check_number
from gem_core.errors import ConfigError

PER_EPISODE = ("group_ids", "env_ids", "agent_ids", "baselines", "bootstrap", "truncated", "threads")
"""Arguments of estimators with one entry per episode."""
IDS = ("group_ids", "env_ids", "agent_ids")
"""Those that are ids."""

FOR_TOKENS = (
    "Tensors of shape (rows, tokens) go to the method `tensors` of the estimator, for example "
    "rebn.tensors(token_rewards, response_mask)."
)


def episode_arrays(name: str, episodes: Sequence[ArrayLike]) -> list[NDArray[np.float64]]:
    """Convert a list with one sequence of numbers per episode to float64 arrays.

    Args:
        name: Name of the argument, for the message.
        episodes: One sequence of floats per episode, one number per turn.

    Raises:
        ConfigError: `episodes` is a tensor, an array, or anything else that is not a list, or an episode is
            a tensor or not a one-dimensional sequence of numbers.
    """
    if not isinstance(episodes, Sequence) or isinstance(episodes, str | bytes):
        raise ConfigError(
            f"{name} is {describe(episodes)}: expected a list with one sequence of numbers per episode, one "
            f"number per turn. {FOR_TOKENS}"
        )
    arrays = []
    for index, episode in enumerate(episodes):
        if is_tensor(episode):
            raise ConfigError(
                f"{name}: episode {index} is {describe(episode)}: expected a list or numpy array with one "
                f"number per turn, such as tensor.tolist(). {FOR_TOKENS}"
            )
        try:
            array = np.asarray(episode, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"{name}: episode {index} is {describe(episode)}: expected one number per turn ({error})"
            ) from error
        if array.ndim != 1:
            raise ConfigError(
                f"{name}: episode {index} has shape {array.shape}: expected one number per turn. {FOR_TOKENS}"
            )
        arrays.append(array)
    return arrays


def entries(name: str, data: Any, count: int, noun: str = "episode") -> list[Any]:
    """Return an argument with one entry per episode, row, or turn as a list.

    Args:
        name: Name of the argument, for messages.
        data: A sequence, a (count,) array, or a (count,) tensor on any device.
        count: Expected number of entries.
        noun: Word for what has an entry, for messages.

    Raises:
        ConfigError: `data` is something else, or has another number of entries.
    """
    listed = data
    if hasattr(data, "tolist"):  # numpy, torch, pandas
        if np.ndim(data) != 1:
            raise ConfigError(f"{name} is {describe(data)}: expected one entry per {noun}, shape ({count},)")
        listed = data.tolist()
    elif not isinstance(data, Sequence) or isinstance(data, str | bytes):  # a text is one id
        raise ConfigError(f"{name} is {describe(data)}: expected a sequence with one entry per {noun}")
    if len(listed) != count:
        raise ConfigError(f"{name}: {len(listed)} entries for {count} {noun}s")
    return list(listed)


def plain(value: Any) -> Any:
    """Return the Python value of a scalar of numpy or torch, and anything else unchanged."""
    scalar = isinstance(value, np.generic) or (isinstance(value, np.ndarray) or is_tensor(value))
    return value.item() if scalar and np.ndim(value) == 0 else value


def plain_id(name: str, value: Any, place: str, turn: int | None = None) -> Hashable:
    """Return an id as a value that Python compares by value.

    Args:
        name: Name of the argument, for messages.
        value: An integer, a string, or another hashable value with an equality of its own; a scalar of numpy
            or torch stands for its value. A tuple holds several ids.
        place: Where the id is, such as ``episode 3``, for messages.
        turn: Index of its turn there, for messages; None for an id of all turns.

    Raises:
        ConfigError: The value is None, a float, NaN, a bool, not hashable, or compared by identity.
    """
    if type(value) is int or type(value) is str:  # nearly all ids: one for each turn
        return value
    if isinstance(value, tuple):
        return tuple(plain_id(name, part, place, turn) for part in value)
    key = plain(value)
    if key is None:
        why = "is missing"
    elif isinstance(key, bool) or (isinstance(key, Number) and not isinstance(key, Integral)):
        why = "is not an id"
    elif is_tensor(key) or not isinstance(key, Hashable):
        why = "cannot be compared as a whole"
    elif type(key).__eq__ is object.__eq__ and not isinstance(key, Enum):
        why = "is compared by identity"
    elif key != key:
        why = "differs from itself"
    else:
        return key
    where = place if turn is None else f"{place}, turn {turn}"
    raise ConfigError(
        f"{name}: {where} has the id {value!r:.80}, which {why}: expected an integer or a string, the "
        "same for all that belong together"
    )


def number_keys(keys: Iterable[Hashable]) -> NDArray[np.int64]:
    """Return the number of each key; keys are numbered from 0 in the order of their first use."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def plain_index(name: str, value: Any, place: str) -> int:
    """Return an index counted from 0, such as the turn of a row.

    Raises:
        ConfigError: The value is not a whole number of at least 0.
    """
    index = plain_id(name, value, place)
    if not isinstance(index, int) or index < 0:
        raise ConfigError(f"{name}: {place} has {index!r}: expected a whole number of at least 0")
    return index


def flags(name: str, data: Any, count: int, noun: str = "episode") -> list[bool]:
    """Return an argument with one bool per episode or row; the numbers 0 and 1 stand for bools.

    Raises:
        ConfigError: An entry is anything else, or the number of entries differs from `count`.
    """
    result = []
    for index, value in enumerate(entries(name, data, count, noun)):
        flag = plain(value)
        if not isinstance(flag, bool | int | float) or flag not in (0, 1):
            raise ConfigError(f"{name}: {noun} {index} has {value!r:.80}: expected True or False")
        result.append(bool(flag))
    return result


def real(name: str, value: Any, low: float | None = None, high: float | None = None) -> float:
    """Return a number, or one element of an array or tensor, as a float.

    Raises:
        ConfigError: It is not a number, not finite, or out of range.
    """
    number = value
    if np.ndim(value) == 0 and not isinstance(value, str | bytes | bool | np.bool_):
        with contextlib.suppress(TypeError, ValueError):
            number = float(value)
    return check_number(name, number, low, high)


def checked_advantages(name: str, result: Any, sizes: Sequence[int]) -> list[NDArray[np.float64]]:
    """Return the result of an estimator, one array per episode.

    Args:
        name: Name of the estimator, for messages.
        result: What the estimator returned.
        sizes: Number of turns of each episode.

    Raises:
        ConfigError: It is not one finite number per turn.
    """
    arrays = episode_arrays(f"the advantages of {name}", [*result] if np.iterable(result) else result)
    found = [len(array) for array in arrays]
    if found != list(sizes):
        raise ConfigError(
            f"{name} returned advantages for {found} turns: expected one per turn, {list(sizes)}"
        )
    for index, array in enumerate(arrays):
        if not np.isfinite(array).all():
            raise ConfigError(f"{name}: an advantage of episode {index} is not finite: {array.tolist()}")
    return arrays


def is_tensor(value: object) -> bool:
    """Return whether `value` is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def describe(value: object) -> str:
    """Describe the type of a value and, if it has one, its shape."""
    kind = f"a {type(value).__module__}.{type(value).__qualname__}".replace("builtins.", "")
    shape = getattr(value, "shape", None)
    return kind if shape is None else f"{kind} of shape {tuple(shape)}"
