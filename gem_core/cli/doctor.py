"""`gem-core doctor`: what is installed here, and whether each trainer finds its plugin."""

from __future__ import annotations

import argparse
import importlib
import platform
import re
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import gem_core
from gem_core.cli import _console
from gem_core.cli._arguments import add_json_flag, command_parser

if TYPE_CHECKING:
    from gem_core.trainers.plugin import SupportedTrainer

PLUGINS = ("gem_verl", "gem_openrlhf", "gem_oat", "gem_rl2", "gem_roll")
STYLES = {"ready": "green", "absent": "yellow", "broken": "bold red"}


@dataclass(frozen=True)
class Package:
    """A package that an extra asks for."""

    requirement: str
    installed: str | None
    """Version; None when it is not installed."""


@dataclass(frozen=True)
class Trainer:
    """What stands between a trainer and its plugin.

    Attributes:
        name: Of the trainer.
        installed: Version, or the folder of a source checkout; None when there is none.
        supported: Range of versions.
        plugin: Import package of the plugin.
        plugin_imports: Whether it can be imported.
        hook: How the plugin gets into the trainer.
        hook_registered: Whether that way is open in this Python environment.
        problems: Why a run would not use the plugin; empty when it would.
    """

    name: str
    installed: str | None
    supported: str
    plugin: str
    plugin_imports: bool
    hook: str
    hook_registered: bool
    problems: list[str]

    @property
    def status(self) -> str:
        """ready, absent (no such trainer here) or broken (it is here, and would run without the plugin)."""
        if not self.problems:
            return "ready"
        return "broken" if self.installed or not self.plugin_imports else "absent"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = command_parser(
        commands,
        "doctor",
        "say what is installed and whether trainers find their plugin",
        examples=["", "--json"],
        details="Exit code 1 when an installed trainer would run without its plugin.",
    )
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the state of this Python environment."""
    from gem_core.sandbox import strongest  # here: the other commands do not need it

    sandbox = strongest()
    base = {
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "gem-core": gem_core.__version__,
        "numpy": _version("numpy") or "not installed",
        "sandbox": f"{sandbox.level}: {sandbox.reason}",
    }
    extras = _extras()
    trainers = [_diagnose(plugin) for plugin in PLUGINS]
    if args.json:
        _console.print_json(
            {
                **base,
                "extras": {name: [asdict(package) for package in extras[name]] for name in extras},
                "trainers": [{**asdict(trainer), "status": trainer.status} for trainer in trainers],
            }
        )
    else:
        _show(base, extras, trainers)
    return int(any(trainer.status == "broken" for trainer in trainers))


def _extras() -> dict[str, list[Package]]:
    """Packages by extra, as this installation's own metadata lists them."""
    from importlib import metadata

    try:
        requirements = metadata.requires("gem-core") or []
    except metadata.PackageNotFoundError:  # run from a source tree that was never installed
        return {}
    extras: dict[str, list[Package]] = {}
    for text in requirements:
        requirement, _, marker = text.partition(";")
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", marker)
        name = re.match(r"[A-Za-z0-9._-]+", requirement)
        if extra and name:
            package = Package(requirement.strip(), _version(name[0]))
            extras.setdefault(extra[1], []).append(package)
    return extras


def _diagnose(plugin: str) -> Trainer:
    try:
        supported: SupportedTrainer = importlib.import_module(plugin).SUPPORTED
    except Exception as error:  # whatever a plugin does on import is a finding, not the end of the list
        problem = f"{plugin} cannot be imported: {type(error).__name__}: {error}"
        return Trainer(plugin.removeprefix("gem_"), None, "?", plugin, False, "?", False, [problem])
    checkout = supported.source_checkout()
    installed = str(checkout) if checkout else supported.installed_version()
    hook_problem = supported.hook_problem()
    problems = [supported.problem(), hook_problem]
    return Trainer(
        name=supported.name,
        installed=installed,
        supported=supported.versions,
        plugin=plugin,
        plugin_imports=True,
        hook=supported.hook,
        hook_registered=hook_problem is None,
        problems=[problem for problem in problems if problem is not None],
    )


def _show(base: dict[str, str], extras: dict[str, list[Package]], trainers: list[Trainer]) -> None:
    _console.print_table(("this environment", ""), list(base.items()))
    print()
    rows = []
    for extra, packages in extras.items():
        missing = any(package.installed is None for package in packages)
        listed = ", ".join(
            f"{package.requirement} ({package.installed or 'missing'})" for package in packages
        )
        rows.append((extra, f"pip install 'gem-core[{extra}]'" if missing else "complete", listed))
    if rows:
        _console.print_table(("extra", "state", "packages (installed version)"), rows)
    else:
        print("gem-core itself is not installed here (it runs from a source tree), so extras are not listed.")
    print()
    for trainer in trainers:
        lines = [f"{trainer.name} {trainer.installed or ''}".rstrip() + f" (supported: {trainer.supported})"]
        lines.append(f"plugin {trainer.plugin}: {'imports' if trainer.plugin_imports else 'does not import'}")
        lines.append(f"hook: {trainer.hook} [{'open' if trainer.hook_registered else 'not open'}]")
        lines += trainer.problems
        _console.print_labelled(f"{trainer.status:7}", "\n          ".join(lines), STYLES[trainer.status])


def _version(distribution: str) -> str | None:
    from importlib import metadata  # takes as long to load as the rest of `gem-core --help`

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
