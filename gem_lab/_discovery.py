"""Trainer plugins by name.

A package registers its plugin as an entry point whose name is the trainer's name on the command line:

    [project.entry-points."gem_core.trainers"]
    acme = "gem_acme:TRAINER"

Names are read from the metadata of the installed packages; a plugin is imported only when it is loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gem_core._util.messages import error_line, unknown
from gem_core.errors import UnknownName, UnsupportedTrainer
from gem_core.trainers import SupportedTrainer, TrainerPlugin

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from gem_core.trainers._plugin import PluginFunction

GROUP = "gem_core.trainers"

_registered: dict[str, TrainerPlugin] = {}


def register_trainer(name: str, plugin: TrainerPlugin) -> None:
    """Register a plugin in this process, with precedence over an installed plugin of the same name."""
    _registered[name] = plugin


def trainer_names() -> list[str]:
    """Return the sorted names of all plugins, without importing any."""
    return sorted({*_registered, *(entry.name for entry in installed(GROUP))})


def check_trainer_names(names: list[str], *others: str) -> None:
    """Check that all names are those of trainers, or among `others`.

    Raises:
        UnknownName: A name is unknown; the message lists the known ones.
    """
    known = [*others, *trainer_names()]
    for name in names:
        if name not in known:
            raise UnknownName(unknown("trainer", str(name), known))


def load_trainer(name: str) -> TrainerPlugin:
    """Return the plugin of a trainer.

    Raises:
        UnknownName: No installed package registers it.
        UnsupportedTrainer: Its plugin cannot be imported, is not a `TrainerPlugin`, or is registered by
            several packages.
    """
    if name in _registered:
        return _registered[name]
    check_trainer_names([name])
    found = [entry for entry in installed(GROUP) if entry.name == name]
    targets = sorted({entry.value for entry in found})
    if len(targets) > 1:
        raise UnsupportedTrainer(f"several packages register trainer {name!r}: {', '.join(targets)}")
    try:
        plugin = found[0].load()
    except Exception as error:  # importing a third-party package can raise anything
        raise UnsupportedTrainer(f"{targets[0]} cannot be imported: {error_line(error)}") from error
    if not isinstance(plugin, TrainerPlugin):
        kind = type(plugin).__name__
        raise UnsupportedTrainer(
            f"{targets[0]} is a {kind}: expected a gem_core.trainers._plugin.TrainerPlugin"
        )
    return plugin


def load_part(name: str, part: PluginFunction) -> Callable[..., Any]:
    """Return a function of a trainer's plugin, such as "exporter".

    Raises:
        UnknownName: No installed package registers the trainer.
        UnsupportedTrainer: Its plugin, or a module that the function needs, cannot be imported.
        ConfigError: The plugin has no such function.
    """
    plugin = load_trainer(name)
    try:
        return plugin.load(part)
    except ImportError as error:
        plugin.supported.require()
        raise UnsupportedTrainer(
            f"{plugin.supported.package} cannot call {name} in this Python environment: {error_line(error)}; "
            "install all that the trainer imports"
        ) from error


def hook_problem(trainer: SupportedTrainer) -> str | None:
    """Return why the hook of a plugin does not work in this Python environment, or None if it does."""
    from importlib.util import find_spec

    if trainer.entry_point is not None:
        group, name = trainer.entry_point
        if name not in {entry.name for entry in installed(group)}:
            return f"no entry point {name!r} in group {group!r}: pip install gem-core in this environment"
    missing = [module for module in trainer.hook_modules if find_spec(module) is None]
    return f"this version of gem-core has no {' and no '.join(missing)} yet" if missing else None


def installed(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group that installed packages have.

    Reading the metadata of all packages takes 30 ms, so it is repeated only when the import path has changed.
    """
    return _on_path(group, tuple(sys.path))


@lru_cache(maxsize=8)
def _on_path(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    from importlib.metadata import entry_points  # slow to import

    return tuple(entry_points(group=group))
