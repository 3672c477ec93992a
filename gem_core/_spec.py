"""`EnvSpec` and `WrapperSpec`: environments and wrappers as data."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from gem_core._util.foreign_json import read_json
from gem_core.errors import ConfigError

EnvFactory: TypeAlias = Callable[..., Any]
"""Returns an environment; usually a class."""


@dataclass(frozen=True)
class WrapperSpec:
    """A registered wrapper and its keyword arguments."""

    name: str
    kwargs: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        arguments = ", ".join(f"{key}={value!r}" for key, value in self.kwargs.items())
        return f"{self.name}({arguments})" if arguments else self.name


@dataclass(frozen=True)
class EnvSpec:
    """Everything needed to build an environment anywhere; `gem_core.make` builds it.

    Attributes:
        id: Registered id, ``family:Name-v0-variant``.
        entry_point: ``module:attribute``, or the callable itself (then the spec has no JSON form).
        kwargs: Keyword arguments of the constructor.
        wrappers: Applied in order, the last one outermost.
        description: One-line description for listings.
        extra: Extra of gem-core that the environment needs; None if it needs numpy only.
        deterministic: Whether the same seed and actions give the same episode.
        stateful: Whether `get_state` and `set_state` save and restore the whole episode.
        eval_kwargs: Added to `kwargs` for evaluation tasks, such as ``{"split": "test"}`` for a dataset with
            a test split. If empty, `Env.items` separates evaluation items from training items, or seeds do.
        floor: Share of the episodes, from 0 to 1, in which the best player that solves nothing succeeds with
            these arguments; None if it is not declared (see `gem_lab._checker.floors`).
    """

    id: str
    entry_point: str | EnvFactory
    kwargs: dict[str, Any] = field(default_factory=dict)
    wrappers: tuple[WrapperSpec, ...] = ()
    description: str = ""
    extra: str | None = None
    deterministic: bool = True
    stateful: bool = True
    eval_kwargs: dict[str, Any] = field(default_factory=dict)
    floor: float | None = None

    def to_json(self) -> str:
        """Return one line of JSON from which `from_json` creates an equal spec.

        Raises:
            ConfigError: The entry point is a callable, or an argument is not JSON-serializable.
        """
        if not isinstance(self.entry_point, str):
            raise ConfigError(
                f"{self.id}: a spec has a JSON form only when its entry point is a 'module:attribute' "
                f"string, not {self.entry_point!r}"
            )
        data = {**self.__dict__, "wrappers": [[w.name, w.kwargs] for w in self.wrappers]}
        try:
            return json.dumps(data)
        except TypeError as error:
            raise ConfigError(f"{self.id}: keyword arguments must be JSON-serializable: {error}") from None

    @classmethod
    def from_json(cls, text: str) -> EnvSpec:
        """Return the spec that `to_json` wrote.

        Raises:
            ConfigError: The text was not written by `to_json`.
        """
        try:
            data = read_json(text)
            wrappers = tuple(WrapperSpec(name, kwargs) for name, kwargs in data.pop("wrappers"))
            return cls(**data, wrappers=wrappers)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ConfigError(f"not the JSON form of an EnvSpec ({error}): {text[:200]}") from None
