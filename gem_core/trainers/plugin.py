"""What a plugin package knows about its trainer: which versions it supports and how it is loaded.

Each ``gem_<trainer>`` package holds one `SupportedTrainer`; `gem-core doctor` prints them.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from gem_core.errors import UnsupportedTrainer


@dataclass(frozen=True)
class SupportedTrainer:
    """A trainer and the range of its versions that a plugin was tested with.

    Attributes:
        name: What people call it.
        package: Import package of the plugin.
        distribution: Name on the package index.
        minimum: First supported version.
        below: First version that is not supported any more.
        hook: How the plugin gets into the trainer's processes, in one sentence.
        home_variable: Environment variable that names a source checkout; None when an installed
            distribution is the only form.
        on_index: Whether `distribution` can be installed from the package index.
        checkout_module: Module that a source checkout on the import path has, ``package.module``.
        hook_modules: Modules of the plugin that the hook names.
        entry_point: Group and name of the entry point that the trainer reads; None when it reads none.
        brought: Versions and what each brought that the plugin needs, for the message about older ones.
    """

    name: str
    package: str
    distribution: str
    minimum: str
    below: str
    hook: str
    home_variable: str | None = None
    on_index: bool = True
    checkout_module: str | None = None
    hook_modules: tuple[str, ...] = ()
    entry_point: tuple[str, str] | None = None
    brought: tuple[tuple[str, str], ...] = ()

    @property
    def versions(self) -> str:
        """The supported range as pip would write it."""
        return f">={self.minimum},<{self.below}"

    def installed_version(self) -> str | None:
        """Version of the installed distribution; None when it is not installed."""
        from importlib.metadata import PackageNotFoundError, version

        if not self.on_index:  # the name may belong to an unrelated project there
            return None
        try:
            return version(self.distribution)
        except PackageNotFoundError:
            return None

    def source_checkout(self) -> Path | None:
        """Folder that `home_variable` names, else that of `checkout_module`; None when there is neither."""
        from importlib.util import find_spec

        folder = os.environ.get(self.home_variable, "") if self.home_variable else ""
        if folder:
            return Path(folder)
        package, _, module = (self.checkout_module or "").partition(".")
        found = find_spec(package) if package else None  # of the top package: imports nothing
        for location in (found.submodule_search_locations if found else None) or ():
            if any((Path(location) / name).exists() for name in (module, f"{module}.py")):
                return Path(location).parent
        return None

    def problem(self) -> str | None:
        """Why the plugin cannot work in this Python environment; None when it can."""
        checkout = self.source_checkout()
        if checkout is not None:
            return None if checkout.is_dir() else f"{self.home_variable}={checkout} is not a folder"
        installed = self.installed_version()
        if installed is None:
            ways = [f"pip install '{self.distribution}{self.versions}'"] if self.on_index else []
            ways += [f"set {self.home_variable} to a source checkout"] if self.home_variable else []
            return f"{self.name} is not installed: {' or '.join(ways)}"
        if not _release(self.minimum) <= _release(installed) < _release(self.below):
            lacks = [what for version, what in self.brought if _release(installed) < _release(version)]
            why = f" ({installed} has no {' and no '.join(lacks)})" if lacks else ""
            return f"{self.name} {installed} is not supported; supported versions: {self.versions}{why}"
        return None

    def hook_problem(self) -> str | None:
        """Why the hook is not open in this Python environment; None when it is."""
        from importlib.metadata import entry_points
        from importlib.util import find_spec

        if self.entry_point is not None:
            group, name = self.entry_point
            if not entry_points(group=group, name=name):
                return f"no entry point {name!r} in group {group!r}: pip install gem-core in this environment"
        missing = [module for module in self.hook_modules if find_spec(module) is None]
        return f"this version of gem-core has no {' and no '.join(missing)} yet" if missing else None

    def require(self) -> None:
        """Raise `UnsupportedTrainer` unless a supported version is there."""
        problem = self.problem()
        if problem is not None:
            raise UnsupportedTrainer(f"{self.package}: {problem}")


def _release(version: str) -> tuple[int, ...]:
    """Leading numbers of a version, without trailing zeros: ``"0.9.0rc1"`` gives ``(0, 9)``."""
    match = re.match(r"\d+(\.\d+)*", version)
    numbers = [int(part) for part in match.group().split(".")] if match else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
