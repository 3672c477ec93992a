"""Replacing parts of a trainer: right after an import, and for the duration of a block."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute of a module or object inside this block."""
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextlib.contextmanager
def until_call(owner: Any, name: str) -> Iterator[list[tuple[tuple[Any, ...], dict[str, Any]]]]:
    """Run the block until it calls a function of a module or class, then leave the block without calling it.

    A plugin uses this to run all checks of a trainer's program but not the program itself.

    Yields:
        A list that will hold the positional and the keyword arguments of the call.
    """

    class BlockLeft(BaseException):
        """Raised to leave the block; not an `Exception`, because a trainer could catch one."""

    original = getattr(owner, name)
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    @functools.wraps(original)
    def leave(*args: Any, **kwargs: Any) -> NoReturn:
        calls.append((args, kwargs))
        raise BlockLeft

    with contextlib.suppress(BlockLeft), replaced(owner, name, leave):
        yield calls


def after_import(name: str, action: Callable[[ModuleType], None]) -> None:
    """Call `action` with the module `name` right after its import, or at once if it is already imported.

    A plugin uses this to patch a trainer's module in a process that may never import it. Errors of `action`
    are raised by the import.
    """
    if name in sys.modules:
        action(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, action))


class _Finder(importlib.abc.MetaPathFinder):
    """Finder that detects the first import of one module."""

    def __init__(self, name: str, action: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._action = action

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)  # the search below must not find this finder again
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._action)
        return spec


class _Loader(importlib.abc.Loader):
    """Loader that runs a module's original loader and then an action."""

    def __init__(self, inner: importlib.abc.Loader, action: Callable[[ModuleType], None]) -> None:
        self._inner = inner
        self._action = action

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._inner.exec_module(module)
        self._action(module)
