"""`gem-core doctor`: report installed packages and whether trainers find their plugins, and check a run."""

from __future__ import annotations

import argparse
import contextlib
import platform
import re
import sys
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import gem_core
from gem_core._util.messages import error_line, error_text
from gem_core.errors import ConfigError, GemError, UnsupportedTrainer
from gem_lab._cli import _console
from gem_lab._cli._arguments import CliCommand, add_json_flag
from gem_lab._cli.template import page

if TYPE_CHECKING:
    from gem_chat._report import TemplateReport
    from gem_core.trainers import Plan

STYLES = {
    "ready": "green", "absent": "yellow", "broken": "bold red", "accepted": "green", "rejected": "bold red",
    "plan": "cyan",
}  # fmt: skip


@dataclass(frozen=True)
class Package:
    """A package that an extra requires."""

    requirement: str
    installed: str | None
    """Installed version; None if the package is not installed."""

    def __str__(self) -> str:
        name = _name(self.requirement)
        return f"{self.requirement} (missing)" if self.installed is None else f"{name} {self.installed}"


@dataclass(frozen=True)
class TrainerStatus:
    """Status of a trainer and its plugin in this Python environment.

    Attributes:
        name: Name of the trainer.
        trainer: Name on the command line, under which the plugin is registered.
        installed: Version, or the folder of a source checkout; None if the trainer is not installed.
        supported: Range of supported versions.
        plugin: Import package of the plugin.
        plugin_imports: Whether the plugin can be imported.
        hook: How the plugin is loaded into the trainer.
        hook_registered: Whether the hook works in this Python environment.
        problems: Reasons why a run would not use the plugin; empty if it would.
        warning: Warning that the installed version is newer than the tested versions; None if it is not.
        supplies: What the trainer supplies to estimators besides rewards and mask.
    """

    name: str
    trainer: str
    installed: str | None
    supported: str
    plugin: str
    plugin_imports: bool
    hook: str
    hook_registered: bool
    problems: list[str]
    warning: str | None = None
    supplies: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        """Status: ``ready``, ``absent`` (not installed), or ``broken`` (would run without the plugin)."""
        if not self.problems:
            return "ready"
        return "broken" if self.installed or not self.plugin_imports else "absent"


COMMAND = CliCommand(
    "report what is installed and check the trainer plugins",
    examples=["", "--trainer acme", "--trainer acme --model Qwen/Qwen3-0.6B -- --gamma 0.9"],
    details="With --trainer, only that trainer is reported. The arguments after -- are those of its own "
    "command, or the whole command. They are checked as at the start of a run, but no process starts and no "
    "model is loaded."
    "\n\nExit code 1 if an installed trainer would run without its plugin, or, with --trainer, if the "
    "trainer is not ready or would reject the arguments, or if contexts reject the chat template of "
    "--model.",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--trainer", metavar="NAME", help="report this trainer only")
    parser.add_argument(
        "arguments", nargs="*", metavar="-- ARGUMENTS", help="arguments of the trainer's own command to check"
    )
    parser.add_argument(
        "--model", metavar="MODEL|FILE", help="also check a chat template, see gem-core template"
    )
    add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Print the state of this Python environment, or of one trainer, and a chat template."""
    template = None if args.model is None else _describe_template(args.model)
    rejected = template is not None and template.rejected is not None
    described = {} if template is None else {"template": asdict(template)}
    if args.trainer:
        code = _report_trainer(args.trainer, args.arguments, args.json, described)
        _show_template(args, template)
        return code or int(rejected)
    if args.arguments:
        raise ConfigError(f"{args.arguments[0]}: checking arguments requires --trainer NAME")
    from gem_envs.sandbox._levels import strongest  # here, because the other commands do not need it
    from gem_lab._discovery import trainer_names

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
    trainers = [_diagnose(name) for name in trainer_names()]
    if args.json:
        _console.print_json(
            {
                **base,
                "extras": {name: [asdict(package) for package in extras[name]] for name in extras},
                "trainers": [{**asdict(trainer), "status": trainer.status} for trainer in trainers],
                **described,
            }
        )
    else:
        _show(base, extras, trainers)
    _show_template(args, template)
    return int(rejected or any(trainer.status == "broken" for trainer in trainers))


def _describe_template(model: str) -> TemplateReport:
    from gem_chat._report import describe_template
    from gem_lab._engines.loading import load_template

    return describe_template(load_template(model))


def _show_template(args: argparse.Namespace, template: TemplateReport | None) -> None:
    if template is not None and not args.json:
        _console.print_text("\n".join(page(args.model, template)))


def _report_trainer(name: str, arguments: list[str], as_json: bool, more: dict[str, Any]) -> int:
    from gem_lab._discovery import check_trainer_names

    check_trainer_names([name])
    arguments = _after_program(arguments)
    trainer = _diagnose(name)
    checked = bool(arguments) and trainer.status == "ready"
    with _console.progress(f"checking the arguments of {trainer.name}", None):
        problem, plan = _check_arguments(name, arguments) if checked else (None, None)
    if as_json:
        report = {**asdict(trainer), "status": trainer.status, "arguments": arguments, "checked": checked}
        described = None if plan is None else {**asdict(plan), "sources": [s._asdict() for s in plan.sources]}
        _console.print_json({**report, "problem": problem, "plan": described, **more})
    else:
        _show_trainer(trainer)
        if checked:
            status = "rejected" if problem else "accepted"
            text = problem or f"{trainer.name} accepts these arguments; nothing was started"
            _console.print_labeled(status, text, STYLES[status])
        for line in plan.lines() if plan else ():
            _console.print_labeled("plan", line, STYLES["plan"])
    return int(trainer.status != "ready" or problem is not None)


def _after_program(words: list[str]) -> list[str]:
    """Return the arguments in a whole command: those after ``-m MODULE``, or after ``python SCRIPT``."""
    for index, (word, module) in enumerate(pairwise(words)):
        if word in ("-m", "--module") and re.fullmatch(r"\w+(\.\w+)+", module):
            return words[index + 2 :]
    return words[2:] if words and re.fullmatch(r"(.*/)?python[\d.]*", words[0]) else words


def _check_arguments(name: str, arguments: list[str]) -> tuple[str | None, Plan | None]:
    """Return why a trainer would reject the arguments of its own command, or else the plan of the run.

    Raises:
        ConfigError: The trainer's plugin cannot check them.
    """
    from gem_lab._discovery import load_part

    preflight = load_part(name, "preflight")
    try:
        with contextlib.redirect_stdout(sys.stderr):  # trainers print while they read their config
            return None, preflight(arguments)
    except GemError as error:
        return error_text(error), None
    except SystemExit as stop:  # the trainer's own parser has printed the reason
        text = stop.code if isinstance(stop.code, str) else "its own parser stopped with the message above"
        return text, None
    except Exception as error:  # the trainer's own checks can raise anything
        return error_line(error), None


def _extras() -> dict[str, list[Package]]:
    """Return the packages of each extra, according to the metadata of this installation."""
    from importlib import metadata

    try:
        requirements = metadata.requires("gem-core") or []
    except metadata.PackageNotFoundError:  # run from a source tree without an installation
        return {}
    extras: dict[str, list[Package]] = {}
    for text in requirements:
        requirement, _, marker = text.partition(";")
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", marker)
        if extra and _applies(marker):
            package = Package(requirement.strip(), _version(_name(requirement)))
            extras.setdefault(extra[1], []).append(package)
    return extras


def _name(requirement: str) -> str:
    """Return the name of the package in a requirement such as ``mkdocs<2,>=1.6``."""
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]


def _applies(marker: str) -> bool:
    """Return whether a requirement of this package applies to this Python version and platform."""
    older = re.search(r"python_version\s*<\s*['\"](\d+)\.(\d+)", marker)
    other = re.search(r"sys_platform\s*!=\s*['\"](\w+)", marker)
    return not (
        (older and sys.version_info[:2] >= (int(older[1]), int(older[2])))
        or (other and sys.platform == other[1])
    )


def _diagnose(name: str) -> TrainerStatus:
    from gem_lab._discovery import hook_problem, load_trainer

    try:
        supported = load_trainer(name).supported
    except UnsupportedTrainer as error:  # a broken plugin must not hide the others
        return TrainerStatus(name, name, None, "?", "?", False, "?", False, [str(error)])
    checkout = supported.source_checkout()
    hook = hook_problem(supported)
    return TrainerStatus(
        name=supported.name,
        trainer=name,
        installed=str(checkout) if checkout else supported.installed_version(),
        supported=supported.versions,
        plugin=supported.package,
        plugin_imports=True,
        hook=supported.hook,
        hook_registered=hook is None,
        problems=[problem for problem in (supported.problem(), hook) if problem is not None],
        warning=supported.untested(),
        supplies=supported.supplies,
    )


def _show(base: dict[str, str], extras: dict[str, list[Package]], trainers: list[TrainerStatus]) -> None:
    _console.print_table(("this environment", ""), list(base.items()))
    _console.print_text()
    rows = []
    for extra, packages in extras.items():
        missing = any(package.installed is None for package in packages)
        rows.append((extra, "incomplete" if missing else "complete", ", ".join(map(str, packages))))
    if rows:
        _console.print_table(("extra", "state", "packages"), rows)
        _console.print_text(
            "To install an extra: pip install 'gem-core[EXTRA]', or pip install 'PATH[EXTRA]' from a clone."
        )
    else:
        _console.print_text(
            "gem-core runs from a source tree that is not installed, so extras are not listed."
        )
    _console.print_text()
    for trainer in trainers:
        _show_trainer(trainer)


def _show_trainer(trainer: TrainerStatus) -> None:
    lines = [trainer.trainer]
    if trainer.plugin_imports:
        lines[0] += f": {trainer.name} {trainer.installed or ''}".rstrip()
        lines[0] += f" (supported: {trainer.supported}), plugin {trainer.plugin}"
        lines.append(f"hook: {trainer.hook} [{'works' if trainer.hook_registered else 'does not work'}]")
        lines.append(f"supplies to estimators: {', '.join(trainer.supplies)}")
    lines += [*trainer.problems, *([trainer.warning] if trainer.warning else [])]
    _console.print_labeled(f"{trainer.status:7}", "\n  ".join(lines), STYLES[trainer.status])


def _version(distribution: str) -> str | None:
    from importlib import metadata  # takes as long to load as the rest of `gem-core --help`

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
