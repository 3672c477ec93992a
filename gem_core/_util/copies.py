"""Copies of the states of environments."""

from __future__ import annotations

import copy
import pickle
from typing import TypeVar

T = TypeVar("T")


def copy_state(value: T) -> T:
    """Return a deep copy of a JSON-serializable value, several times as fast as `copy.deepcopy`."""
    if type(value) in (list, dict):
        try:
            return pickle.loads(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))  # type: ignore[no-any-return]
        except (pickle.PicklingError, AttributeError, TypeError):
            pass  # for example, it holds an object of a local class; an environment need not be stateful
    return copy.deepcopy(value)
