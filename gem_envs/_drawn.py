"""Groups of tasks whose names and numbers are drawn from a seed: `Drawn`, and `TaskChoice`, a selection."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from random import Random
from typing import Generic, TypeVar

from gem_core._util.seeds import derive_rng
from gem_core.errors import ConfigError

T = TypeVar("T")


class Drawn(Generic[T]):
    """All tasks of a family, in groups.

    Each group is a module of functions that build a task from a `Random`.

    Args:
        package: Package that contains the modules.
        groups: Names of the groups, in order.
    """

    def __init__(self, package: str, groups: Sequence[str]) -> None:
        self.package, self.groups = package, tuple(groups)
        self.makers: dict[str, dict[str, Callable[[Random], T]]] = {}
        """The functions, by group and name."""

    def add(self, maker: Callable[[Random], T]) -> Callable[[Random], T]:
        """Register a task under the name of its function, in the group of its module; a decorator."""
        group = maker.__module__.rpartition(".")[2]
        self.makers.setdefault(group, {})[maker.__name__] = maker
        return maker

    def choose(self, names: Sequence[str] | str | None = None) -> TaskChoice[T]:
        """Select tasks by the names of groups or tasks; None selects all.

        Raises:
            ConfigError: A name is unknown, or nothing is selected.
        """
        for group in self.groups:
            importlib.import_module(f"{self.package}.{group}")
        every = {name: maker for group in self.groups for name, maker in self.makers[group].items()}
        selection = self.groups if names is None else (names,) if isinstance(names, str) else tuple(names)
        chosen: dict[str, Callable[[Random], T]] = {}
        for name in selection:
            if name not in self.makers and name not in every:
                raise ConfigError(
                    f"unknown task {name!r}; groups: {', '.join(self.groups)}; tasks: {', '.join(every)}"
                )
            chosen |= self.makers.get(name, {name: every[name]} if name in every else {})
        if not chosen:
            raise ConfigError("tasks=(): expected at least one name of a group or task")
        return TaskChoice(chosen)


class TaskChoice(Generic[T]):
    """A numbered selection of tasks."""

    def __init__(self, makers: dict[str, Callable[[Random], T]]) -> None:
        self.names = list(makers)
        self._makers = list(makers.values())

    def __len__(self) -> int:
        return len(self._makers)

    def task(self, index: int, seed: int) -> T:
        """Build task `index` with names and numbers drawn from `seed`."""
        return self._makers[index](derive_rng(self.names[index], seed))


# -- words that tasks draw ------------------------------------------------------------------------

PEOPLE = (
    "amina", "bjorn", "chloe", "dario", "elif", "fumiko", "goran", "hanna", "ivo", "jelena", "kwame", "leila",
    "mateo", "nadia", "oskar", "priya", "quinn", "rosa", "sven", "tomas", "uma", "viktor", "wanda", "yusuf",
)  # fmt: skip
THINGS = (
    "anchor", "barrel", "candle", "drum", "engine", "feather", "gravel", "hammer", "island", "jacket",
    "kettle", "lantern", "marble", "needle", "orchard", "pepper", "quartz", "ribbon", "saddle", "timber",
    "umbrella", "velvet", "walnut", "yarn", "zipper",
)  # fmt: skip
PLACES = (
    "aarhus", "bergen", "cadiz", "dakar", "essen", "fargo", "ghent", "hanoi", "izmir", "jaipur", "kyoto",
    "lagos", "malmo", "naples", "osaka", "porto", "quito", "riga", "split", "turin", "utrecht", "vaasa",
)  # fmt: skip
