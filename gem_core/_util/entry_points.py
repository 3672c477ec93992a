"""Code by name: ``module:attribute`` or ``file.py:attribute``, and the entry points of installed packages."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
import traceback
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gem_core._util.forks import ForkSafeLock
from gem_core._util.messages import error_line, suggest
from gem_core.errors import ConfigError, GemError, MissingDependency

if TYPE_CHECKING:
    import inspect

logger = logging.getLogger(__name__)

_OWN = "gem-core"
"""Distribution whose entry points are loaded first."""

_loaded_groups: set[str] = set()
_own_groups: set[str] = set()
"""Groups of which the own entry points were loaded."""
lock = ForkSafeLock(reentrant=True)
"""Lock that is held while a group is loaded; reentrant, because loading a group may load another one."""


def load_entry_points(group: str, *, own: bool = False) -> None:
    """Let installed packages register their contributions to `group`, once per process.

    An entry point names a module to import or a function to call. Those of gem-core itself come first, so
    that no other package takes their names. An entry point that fails is logged and skipped.

    Args:
        group: Group of entry points.
        own: Whether to load only the entry points of gem-core.
    """
    with lock:  # other threads wait until all entry points are loaded
        loaded_groups = _own_groups if own else _loaded_groups
        if group in loaded_groups:
            return
        if not own:
            load_entry_points(group, own=True)
        loaded_groups.add(group)
        from importlib.metadata import entry_points

        found = [
            entry_point
            for entry_point in entry_points(group=group)
            if (entry_point.dist is not None and entry_point.dist.name == _OWN) is own
        ]
        if own and group == "gem_core.envs" and not found:
            logger.warning(
                "gem-core runs from a source tree that is not installed, so its environments and "
                "wrappers are not registered: install it, for example with pip install -e PATH"
            )
        for entry_point in found:
            try:
                loaded = entry_point.load()
                if callable(loaded):
                    loaded()
            except Exception as error:
                logger.warning(
                    "entry point %r of group %s was not loaded: %s",
                    entry_point.name, group, error_line(error),
                )  # fmt: skip


def check_entry_point(name: str, entry_point: object) -> None:
    """Check that an entry point is callable or has the form ``module:attribute``.

    Raises:
        ConfigError: It is anything else.
    """
    if not callable(entry_point) and not (isinstance(entry_point, str) and entry_point.count(":") == 1):
        raise ConfigError(
            f"{name}: entry point {entry_point!r}: expected 'module:attribute', a class, or a function"
        )


def load_attribute(name: str, entry_point: str, extra: str | None = None) -> Any:
    """Import the object that an entry point ``module:attribute`` or ``file.py:attribute`` names.

    Args:
        name: Name of the owner of the entry point, for messages.
        entry_point: The entry point.
        extra: Extra of gem-core with the packages that the module needs; None if it needs no extra.

    Raises:
        MissingDependency: A package of `extra` is not installed.
        ConfigError: There is no such module, file, or attribute.
    """
    module, _, attribute = entry_point.partition(":")
    try:
        loaded = _load_file(name, module) if is_file(module) else importlib.import_module(module)
    except ModuleNotFoundError as error:
        if extra is not None:
            raise MissingDependency(
                f"{name} needs the package {error.name!r}: pip install 'gem-core[{extra}]'"
            ) from error
        if not f"{module}.".startswith(f"{error.name}."):  # a package that the module needs
            raise
        raise ConfigError(f"{name}: entry point {entry_point!r} cannot be imported: {error}") from error
    if not hasattr(loaded, attribute):
        hint = suggest(attribute, vars(loaded))
        raise ConfigError(f"{name}: there is no {attribute!r} in {module}.{hint}")
    return getattr(loaded, attribute)


def is_file(module: str) -> bool:
    """Return whether the first part of an entry point names a Python file and not a module."""
    return module.endswith(".py")


def absolute(entry_point: str) -> str:
    """Return an entry point with an absolute path if it names a file, and unchanged otherwise."""
    module, colon, attribute = entry_point.partition(":")
    return f"{Path(module).resolve()}{colon}{attribute}" if is_file(module) else entry_point


def _load_file(name: str, path: str) -> ModuleType:
    """Return the module in a file, which is executed once per process.

    Raises:
        ConfigError: The file does not exist or raises an error.
    """
    file = Path(path).resolve()
    # The name depends on the path only, so objects of the module can be pickled for another process.
    module_name = f"gem_core_file_{file.stem}_{zlib.crc32(os.fsencode(file)):08x}"
    with lock:
        if module_name not in sys.modules:
            if not file.is_file():
                raise ConfigError(f"{name}: {file} does not exist")
            spec = importlib.util.spec_from_file_location(module_name, file)
            assert spec is not None  # a path that ends with .py has a spec with a loader
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[module_name] = module
            try:
                spec.loader.exec_module(module)
            except BaseException as error:
                del sys.modules[module_name]
                if isinstance(error, GemError | KeyboardInterrupt):  # a file may end with sys.exit
                    raise
                line = next((f":{lineno}" for lineno in _lines_in(file, error)), "")
                raise ConfigError(f"{name}: {file}{line} cannot be imported: {error_line(error)}") from error
    return sys.modules[module_name]


def _lines_in(file: Path, error: BaseException) -> list[int]:
    """Return the line numbers of a file that were running when it raised, the innermost first."""
    frames = reversed(traceback.extract_tb(error.__traceback__))
    return [frame.lineno for frame in frames if frame.filename == str(file) and frame.lineno]


def check_arguments(name: str, factory: Callable[..., Any], kwargs: dict[str, Any]) -> None:
    """Check keyword arguments against the signature of a factory, without calling it.

    Raises:
        TypeError: An argument is unknown or missing; the message names the accepted ones.
    """
    signature = _signature(factory)
    try:
        signature.bind(*([None] if isinstance(factory, type) else []), **kwargs)
    except TypeError as error:
        accepted = ", ".join(_names(signature)) or "none"
        raise TypeError(f"{name}: {error}; accepted keyword arguments: {accepted}") from None


def argument_names(factory: Callable[..., Any]) -> list[str]:
    """Return the names of the keyword arguments that a factory accepts."""
    return _names(_signature(factory))


def _signature(factory: Callable[..., Any]) -> inspect.Signature:
    import inspect

    # Env.__new__ accepts any arguments, so __init__ has the signature of the constructor.
    function: Any = factory.__init__ if isinstance(factory, type) else factory  # type: ignore[misc]
    try:
        return inspect.signature(function)
    except ValueError:  # a builtin that does not say what it accepts: calling it tells
        return inspect.signature(lambda *args, **kwargs: None)


def _names(signature: inspect.Signature) -> list[str]:
    return [parameter for parameter in signature.parameters if parameter not in ("self", "env")]
