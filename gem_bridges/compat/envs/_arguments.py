"""Arguments and attributes of GEM's environments that gem_core's environments lack."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from random import Random
from typing import Any

from gem_core import Wrapper

IGNORED = frozenset(("use_mp", "verbose", "load_from_cache_file", "max_workers", "sandbox_type", "max_turns"))
"""Arguments of GEM's environments that are ignored if a constructor lacks them."""


def with_gems_arguments(constructor: Callable[..., None]) -> Callable[..., None]:
    """Return the constructor of a dataset with GEM's arguments.

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


class Dataset(Sequence[Any]):
    """Rows with the part of the interface of ``datasets.Dataset`` that GEM's programs use.

    A number selects a row, a slice selects a dict of columns, and a name selects a column.
    """

    def __init__(self, rows: Sequence[Any], indices: Sequence[int] | None = None) -> None:
        self._rows = rows
        self._indices = range(len(rows)) if indices is None else indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, key: int | slice | str) -> Any:
        if isinstance(key, int):
            return self._rows[self._indices[key]]
        if isinstance(key, str):
            return [row[key] for row in self]
        rows = list(self.select(range(len(self))[key]))
        return {column: [row[column] for row in rows] for column in (rows[0] if rows else ())}

    def select(self, indices: Iterable[int]) -> Dataset:
        """Return some of the rows."""
        return Dataset(self._rows, [self._indices[index] for index in indices])

    def shuffle(self, seed: int | None = None) -> Dataset:
        """Return the rows in random order; None as the seed draws a different order each time."""
        indices = list(self._indices)
        Random(seed).shuffle(indices)
        return Dataset(self._rows, indices)


class Attributes:
    """Attributes of GEM's environments of a dataset."""

    @property
    def dataset(self) -> Dataset:
        """Rows of the dataset, which `make` accepts as ``dataset=``; without one, raises AttributeError."""
        return Dataset(_base(self).rows)

    @dataset.setter
    def dataset(self, rows: Iterable[Any]) -> None:
        env = _base(self)
        env.open(None, list(rows), None, None, False, env.eval_only, {})

    @property
    def answer(self) -> Any:
        """Reference answer or tests of the current item; setting it starts an episode with that answer."""
        env = _base(self)
        return env.row[env.keys[1]]

    @answer.setter
    def answer(self, value: Any) -> None:
        env: Any = self
        base = _base(self)
        env.reset(options={"index": getattr(base, "index", 0)})
        base.row = {**base.row, base.keys[1]: value}

    tests = answer


def _base(env: Any) -> Any:
    return env.env.unwrapped if isinstance(env, Wrapper) else env
