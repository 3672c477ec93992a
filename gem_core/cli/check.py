"""`gem-core check`: does an environment keep the contract?"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass

from gem_core.cli import _console
from gem_core.cli._arguments import (
    add_env_arguments,
    add_json_flag,
    build_env,
    command_parser,
    is_pattern,
    parse_env,
    positive_int,
)
from gem_core.errors import (
    CheckFailed,
    ConfigError,
    DataError,
    GemError,
    MissingDependency,
    SandboxError,
)


@dataclass(frozen=True)
class Verdict:
    """What the check of one environment found."""

    id: str
    status: str
    """ok, failed or skipped."""
    rules: tuple[str, ...] = ()
    """Rules that hold."""
    not_applicable: tuple[str, ...] = ()
    """Rules that the environment is excused from."""
    message: str = ""
    """What is wrong, or why the environment was skipped."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = command_parser(
        commands,
        "check",
        "check that environments keep the contract",
        examples=["game:GuessTheNumber-v0-easy", "'game:*' --json", "my:Env-v0 --kwargs size=5"],
        details="Exit code 1 when a rule is broken.",
    )
    parser.add_argument("ids", nargs="*", metavar="ID", help="id or shell-style pattern")
    parser.add_argument("--all", action="store_true", help="every registered environment")
    parser.add_argument("--seeds", type=positive_int, default=3, metavar="N", help="episodes (default 3)")
    add_env_arguments(parser)
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check one after the other; exit code 1 when a rule is broken."""
    verdicts = []
    for id in _chosen(args):
        verdict = _check(id, args)
        verdicts.append(verdict)
        if not args.json:
            _show(verdict)
    if args.json:
        _console.print_json([asdict(verdict) for verdict in verdicts])
    return int(any(verdict.status == "failed" for verdict in verdicts))


def _chosen(args: argparse.Namespace) -> list[str]:
    from gem_core.registration import list_envs

    if not args.ids and not args.all:
        raise ConfigError("nothing to check: give an id, a pattern or --all")
    chosen = list_envs() if args.all else []
    for given in args.ids:
        matching = list_envs(given) if is_pattern(given) else [given]
        if not matching:
            raise ConfigError(f"no environment matches {given!r}; `gem-core envs` lists all")
        chosen += [id for id in matching if id not in chosen]
    return chosen


def _check(id: str, args: argparse.Namespace) -> Verdict:
    from gem_core.checker import check_env

    name, kwargs = parse_env(id, args.kwargs)
    try:
        build_env(name, kwargs, args.wrappers).close()
    except (DataError, MissingDependency, SandboxError) as error:  # what this machine does not have
        if not args.all:
            raise
        return Verdict(id, "skipped", message=str(error))
    except GemError as error:  # a server that does not answer, say; the others are still to be checked
        if not args.all:
            raise
        return Verdict(id, "failed", message=str(error))
    try:
        report = check_env(name, seeds=range(args.seeds), wrappers=args.wrappers, **kwargs)
    except CheckFailed as error:
        return Verdict(id, "failed", message=str(error))
    return Verdict(id, "ok", rules=report.passed, not_applicable=tuple(report.skipped))


def _show(verdict: Verdict) -> None:
    if verdict.status == "ok":
        excused = f", {len(verdict.not_applicable)} do not apply" if verdict.not_applicable else ""
        text = f"{len(verdict.rules)} rules hold{excused}"
    else:
        text = verdict.message.replace("\n", "\n        ")
    styles = {"ok": "green", "failed": "bold red", "skipped": "yellow"}
    _console.print_labelled(f"{verdict.status:7}", f"{verdict.id}: {text}", styles[verdict.status])
