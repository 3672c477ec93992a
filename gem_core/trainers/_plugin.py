"""Declarations of a plugin package: its trainer, and its contributions to the gem-core command.

    TRAINER = TrainerPlugin(SUPPORTED, exporter="gem_acme.export:write", recipe_writer="gem_acme.repro:write")

A package registers its `TrainerPlugin` under the entry-point group ``gem_core.trainers``; see
`gem_lab._discovery`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from gem_core._util.entry_points import load_attribute
from gem_core.errors import ConfigError, GemError, UnsupportedTrainer

if TYPE_CHECKING:
    from gem_core._tasks import TaskRow
    from gem_core.advantages._registry import Estimator, Supply
    from gem_core.trainers._plan import Plan

Exporter: TypeAlias = "Callable[[Iterable[TaskRow], str | Path], None]"
RecipeWriter: TypeAlias = "Callable[[Any, Path], list[str]]"
"""Function of a `gem_lab.repro.Recipe` and a folder; see `TrainerPlugin`."""
Recorder: TypeAlias = "Callable[[Path], None]"
Preflight: TypeAlias = "Callable[[list[str]], Plan | None]"
PluginFunction: TypeAlias = Literal[
    "exporter", "recipe_writer", "step_recorder", "learning_recorder", "preflight", "conform"
]

EPISODE_SUPPLIES: tuple[Supply, ...] = (
    "group_ids", "lengths", "env_ids", "agent_ids", "state_keys", "reward_components", "truncated",
)  # fmt: skip
"""What a trainer supplies whose rows carry the facts of their episodes."""

_PARTS: dict[PluginFunction, str] = {
    "exporter": "exporter; `--to tasks` writes the same rows as JSON Lines",
    "recipe_writer": "recipe writer",
    "step_recorder": "recorder of a step",
    "learning_recorder": "recorder of learning runs",
    "preflight": "check of the trainer's arguments",
    "conform": "estimators to grade",
}
"""Names of the functions of a plugin, for messages."""
_warned: set[tuple[str, str]] = set()
"""Packages and warnings that this process has already shown."""


@dataclass(frozen=True)
class SupportedTrainer:
    """A trainer and the range of its versions that the plugin was tested with.

    Attributes:
        name: Name of the trainer, for messages.
        package: Import package of the plugin.
        distribution: Name on the package index.
        versions: The tested versions, in pip's syntax: ``">=FIRST,<FIRST_UNTESTED"``. A newer version is
            accepted if it has the interface that the plugin checks; see `gem_core.trainers._interface`.
        hook: How the plugin is loaded into the trainer's processes, in one sentence.
        home_variable: Environment variable with the path of a source checkout; None if the plugin supports
            installed distributions only.
        on_index: Whether `distribution` can be installed from the package index.
        checkout_module: Module, ``package.module``, that identifies a source checkout on the import path.
        hook_modules: Modules of the plugin that the hook uses.
        entry_point: Group and name of the entry point that the trainer reads; None if it does not read entry
            points.
        required_features: Pairs of a version and a required feature that it introduced, for the message about
            older versions.
        own_estimators: Names of the trainer's own estimators, if the option that selects them also selects
            those of gem_core.
        supplies: What the trainer supplies to estimators besides rewards and mask. Plugins, recipes, and the
            documentation read it here.
        supplies_to_stats: What it supplies to an estimator that normalizes by statistics of the batch
            (`Estimator.uses_stats`); None means the same.

    Raises:
        ConfigError: `versions` is not such a range.
    """

    name: str
    package: str
    distribution: str
    versions: str
    hook: str
    home_variable: str | None = None
    on_index: bool = True
    checkout_module: str | None = None
    hook_modules: tuple[str, ...] = ()
    entry_point: tuple[str, str] | None = None
    required_features: tuple[tuple[str, str], ...] = ()
    own_estimators: tuple[str, ...] = ()
    supplies: tuple[Supply, ...] = ("group_ids",)
    supplies_to_stats: tuple[Supply, ...] | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r">=[\d.]+,<[\d.]+", self.versions):
            raise ConfigError(f"versions={self.versions!r}: expected a range such as '>=1.2,<2'")

    def supplies_for(self, estimator: Estimator[..., Any]) -> tuple[Supply, ...]:
        """Return what the trainer supplies to an estimator."""
        if estimator.uses_stats and self.supplies_to_stats is not None:
            return self.supplies_to_stats
        return self.supplies

    @property
    def minimum(self) -> str:
        """First supported version."""
        return self.versions.removeprefix(">=").partition(",<")[0]

    @property
    def below(self) -> str:
        """First untested version."""
        return self.versions.partition(",<")[2]

    def read_table(self, name: str, section: str) -> dict[str, Any]:
        """Return one section of a JSON file in the folder of the plugin's package.

        Args:
            name: Name of the file.
            section: Key of the section.

        Raises:
            KeyError: The file has no such section.
        """
        from importlib.resources import files

        table: dict[str, Any] = json.loads((files(self.package) / name).read_text("utf-8"))[section]
        return table

    def installed_version(self) -> str | None:
        """Return the version of the installed distribution, or None if it is not installed."""
        from importlib.metadata import PackageNotFoundError, version

        if not self.on_index:  # the index may have an unrelated project of the same name
            return None
        try:
            return version(self.distribution)
        except PackageNotFoundError:
            return None

    def source_checkout(self) -> Path | None:
        """Return the folder in `home_variable`, or else the folder of `checkout_module`, or None."""
        from importlib.util import find_spec

        folder = os.environ.get(self.home_variable, "") if self.home_variable else ""
        if folder:
            return Path(folder)
        package, _, module = (self.checkout_module or "").partition(".")
        spec = find_spec(package) if package else None  # the top package only, which imports nothing
        for location in (spec.submodule_search_locations if spec else None) or ():
            if any((Path(location) / name).exists() for name in (module, f"{module}.py")):
                return Path(location).parent
        return None

    def import_checkout_first(self) -> None:
        """Put the source checkout, if there is one, first on the import path."""
        checkout = self.source_checkout()
        if checkout is not None and str(checkout) not in sys.path:
            sys.path.insert(0, str(checkout))

    def problem(self) -> str | None:
        """Return why the plugin cannot work in this Python environment, or None if it can."""
        checkout = self.source_checkout()
        if checkout is not None:
            return None if checkout.is_dir() else f"{self.home_variable}={checkout} is not a folder"
        installed = self.installed_version()
        if installed is None:
            ways = [f"pip install '{self.distribution}{self.versions}'"] if self.on_index else []
            ways += [f"set {self.home_variable} to a source checkout"] if self.home_variable else []
            return f"{self.name} is not installed: {' or '.join(ways)}"
        if _release(installed) < _release(self.minimum):
            lacks = [
                what for version, what in self.required_features if _release(installed) < _release(version)
            ]
            why = f" ({installed} has no {' and no '.join(lacks)})" if lacks else ""
            return f"{self.name} {installed} is not supported; supported versions: {self.versions}{why}"
        return None

    def untested(self) -> str | None:
        """Return a warning if the installed version is newer than the tested ones, or else None."""
        installed = None if self.source_checkout() is not None else self.installed_version()
        if installed is None or _release(installed) < _release(self.below):
            return None
        return (
            f"{self.name} {installed} is newer than the tested versions ({self.versions}). Its interface is "
            "checked before it is used"
        )

    def require(self) -> None:
        """Raise `UnsupportedTrainer` if no supported version is installed; warn once if it is untested."""
        problem = self.problem()
        if problem is not None:
            raise UnsupportedTrainer(f"{self.package}: {problem}")
        warning = self.untested()
        if warning is not None and (self.package, warning) not in _warned:
            _warned.add((self.package, warning))
            warnings.warn(f"{self.package}: {warning}", stacklevel=2)


@contextlib.contextmanager
def errors_in_one_line(trainer: SupportedTrainer) -> Iterator[None]:
    """Print a `GemError` raised in this block to standard error as one line, and exit with code 2."""
    try:
        yield
    except GemError as error:
        sys.stderr.write(f"{trainer.package}: {error}\n")
        sys.exit(2)


def _release(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version without trailing zeros: ``"0.9.0rc1"`` gives ``(0, 9)``."""
    match = re.match(r"\d+(\.\d+)*", version)
    numbers = [int(part) for part in match.group().split(".")] if match else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


@dataclass(frozen=True)
class TrainerPlugin:
    """Contributions of a plugin to the gem-core command.

    A function is given directly or as ``module:function``, which is imported at the first call. None means
    that the plugin does not provide the function.

    Attributes:
        supported: Trainer, its supported versions, and how the plugin is loaded into it.
        exporter: ``(rows, path) -> None``, which writes task rows in the trainer's format for
            `gem-core export`.
        recipe_writer: ``(recipe, folder) -> list[str]``, which writes a run for `gem-core repro` and
            returns notes on differences from the other trainers.
        step_recorder: ``(folder) -> None``, which takes one step in the trainer and writes its
            `gem_lab.consistency.Record`, and the reference record if it is missing, for
            `gem-core consistency --run`.
        learning_recorder: ``(path) -> None``, which adds the missing learning runs of the trainer and of the
            reference trainer to a JSON Lines file (`gem_lab.consistency.LearningRun`), for
            `gem-core consistency --level 4 --run`.
        files: Maps the name of each file that a command of the trainer needs to its module. `gem-core path
            TRAINER-NAME` prints where it is installed.
        preflight: ``(arguments) -> Plan | None``, which checks the arguments of the trainer's own command
            for `gem-core doctor --trainer`, with the same checks as a run but without starting a process or
            loading a model. It raises an error if a run would be rejected, and otherwise returns what the
            run would do; see `gem_core.trainers._plan`.
        conform: ``() -> Mapping[str, GradedEstimator]``, which returns estimators of the trainer and of
            gem-core in it for `gem-core conform --trainer`; see `gem_lab._conform`.
    """

    supported: SupportedTrainer
    exporter: str | Exporter | None = None
    recipe_writer: str | RecipeWriter | None = None
    step_recorder: str | Recorder | None = None
    learning_recorder: str | Recorder | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    preflight: str | Preflight | None = None
    conform: str | Callable[[], Mapping[str, Any]] | None = None

    def load(self, part: PluginFunction) -> Callable[..., Any]:
        """Return the function of one of the attributes above, such as "exporter".

        Raises:
            ConfigError: The plugin has no such function.
        """
        reference = getattr(self, part)
        if reference is None:
            raise ConfigError(f"{self.supported.package} has no {_PARTS[part]}")
        if not isinstance(reference, str):
            return reference  # type: ignore[no-any-return]
        return load_attribute(self.supported.package, reference)  # type: ignore[no-any-return]

    def file_path(self, name: str) -> Path:
        """Return the path at which one of the `files` is installed.

        Raises:
            ConfigError: The module is missing or is not a file.
        """
        from importlib.util import find_spec

        module = self.files[name]
        try:
            spec = find_spec(module)
        except ModuleNotFoundError:
            spec = None
        if spec is None or spec.origin is None:
            raise ConfigError(f"{self.supported.package}: no file is installed for module {module!r}")
        return Path(spec.origin)
