"""`Registry`: values by name, used for environments, wrappers, tools, estimators, and other parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from gem_core._util.entry_points import load_entry_points
from gem_core._util.messages import unknown
from gem_core.errors import ConfigError, UnknownName

T = TypeVar("T")


class Registry(Generic[T]):
    """A mapping from names to registered values.

        tools: Registry[str] = Registry("tool", group="gem_core.tools")
        tools.register("python", "gem_envs.tools._python:PythonTool")
        tools.get("pyton")  # UnknownName: unknown tool 'pyton'. Did you mean python? Available: ...

    Registering the same value again has no effect; a different value under the same name is an error.

    Args:
        kind: Kind of the values, for messages.
        group: Entry-point group whose packages register more values. It is loaded before the names are
            listed, and before a name is reported as unknown; the entry points of gem-core, before the first
            value is registered.
        load: Function that may register more values, for values that are expensive to find. It is called with
            a name that is not registered after `group` is loaded, and with the pattern before the names are
            listed.
        error: Error type for an unknown name.
        hint: Text that replaces the list of all names in the message about an unknown name.
    """

    def __init__(
        self,
        kind: str,
        *,
        group: str | None = None,
        load: Callable[[str], None] | None = None,
        error: type[Exception] = UnknownName,
        hint: str | None = None,
    ) -> None:
        self._kind, self._group, self._load = kind, group, load
        self._error, self._hint = error, hint
        self._values: dict[str, T] = {}

    def register(self, name: str, value: T, *, replace: bool = False) -> None:
        """Register `value` under `name`.

        Args:
            name: The name.
            value: The value.
            replace: Whether it replaces a different value.

        Raises:
            ConfigError: The name is not a text, or is taken by a different value, and `replace` is False.
        """
        if not isinstance(name, str) or not name.strip():
            raise ConfigError(f"{self._kind} {name!r}: expected a text as its name, not an empty one")
        if self._group is not None:
            load_entry_points(self._group, own=True)
        if replace:
            self._values[name] = value
        registered = self._values.setdefault(name, value)
        if registered != value:
            raise ConfigError(
                f"{self._kind} {name!r} is already registered as {registered!r:.200}; choose another name"
            )

    def get(self, name: str) -> T:
        """Return the value registered under `name`.

        Raises:
            UnknownName: The name is unknown; the message holds the closest names. A registry with another
                `error` raises that instead.
        """
        name = str(name)  # of a wrong type, for the message
        if name not in self._values and self._group is not None:
            load_entry_points(self._group)
        if name not in self._values and self._load is not None:
            self._load(name)
        try:
            return self._values[name]
        except KeyError:
            raise self._error(unknown(self._kind, name, sorted(self._values), hint=self._hint)) from None

    def names(self, pattern: str = "*") -> list[str]:
        """Return the sorted names that match a shell-style pattern."""
        from fnmatch import filter

        if self._group is not None:
            load_entry_points(self._group)
        if self._load is not None:
            self._load(pattern)
        return sorted(filter(self._values, pattern))

    def registered(self) -> dict[str, T]:
        """Return a copy of the values registered so far, at least those of gem-core itself."""
        if self._group is not None:
            load_entry_points(self._group, own=True)
        return dict(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._values
