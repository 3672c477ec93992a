"""Arguments of GEM's environments that gem_core's environments lack."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

IGNORED = frozenset(("use_mp", "verbose", "load_from_cache_file", "max_workers", "sandbox_type", "max_turns"))
"""Arguments of GEM's environments that are ignored if a constructor lacks them."""


def with_gems_arguments(constructor: Callable[..., None]) -> Callable[..., None]:
    """Return the constructor of a data set with GEM's arguments.

    It drops `IGNORED`, prefers ``dataset``, which may be a ``datasets.Dataset``, to ``dataset_name``, and
    seeds the first reset with ``seed``.
    """
    known = inspect.signature(constructor).parameters

    @wraps(constructor)
    def construct(self: Any, *arguments: Any, **kwargs: Any) -> None:
        if kwargs.get("dataset") is not None:
            kwargs |= {"dataset": list(kwargs["dataset"]), "dataset_name": None}
        seed = kwargs.pop("seed", None)
        constructor(self, *arguments, **{n: v for n, v in kwargs.items() if n in known or n not in IGNORED})
        if seed is not None:
            self.random.seed(seed)

    return construct


class Attributes:
    """Attributes of GEM's environments of a data set."""

    rows: Any
    index: int
    keys: tuple[Any, ...]

    @property
    def answer(self) -> Any:
        """Reference answer of the current item, or its tests."""
        return self.rows[self.index][self.keys[1]]
