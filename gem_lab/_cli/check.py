"""`gem-core check`: check that environments follow the rules of `check_env`."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace

from gem_core.errors import ConfigError, DataError, GemError, MissingDependency, SandboxError
from gem_lab._cli import _console
from gem_lab._cli._arguments import (
    LIST,
    CliCommand,
    add_env_arguments,
    add_json_flag,
    build_env,
    is_pattern,
    listed,
    parse_env,
    positive_int,
)


@dataclass(frozen=True)
class EnvCheck:
    """Result for one environment.

    Attributes:
        id: Environment id.
        status: ``ok``, ``failed``, or ``skipped``.
        rules: Rules that the environment follows.
        not_applicable: Rules that do not apply to the environment.
        message: Failure message, or the reason why the environment was skipped.
        broken: Maps each broken rule to its message, with the command that reproduces it.
        unchecked: Maps each rule that was not checked to the broken rule that has to hold first.
        lacking: Maps each rule that cannot be checked on this machine to the reason.
    """

    id: str
    status: str
    rules: tuple[str, ...] = ()
    not_applicable: tuple[str, ...] = ()
    message: str = ""
    broken: dict[str, str] = field(default_factory=dict)
    unchecked: dict[str, str] = field(default_factory=dict)
    lacking: dict[str, str] = field(default_factory=dict)


COMMAND = CliCommand(
    "check that environments follow the rules",
    examples=[
        "game:GuessTheNumber-v0-easy",
        "'game:*' --json",
        "my_env.py:MyEnv --kwargs size=5",
        "textarena:Wordle-v0 --actions '[crane]' '[slate]'",
    ],
    details="Exit code 1 if an environment breaks a rule. Each broken rule is printed with a command that "
    "reproduces it.",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("ids", nargs="*", metavar="ID", help="id, FILE.py:CLASS, or shell-style pattern")
    parser.add_argument("--all", action="store_true", help="check every registered environment")
    parser.add_argument(
        "--seeds", type=positive_int, default=3, metavar="N", help="number of seeds (default 3)"
    )
    parser.add_argument("--rules", **LIST, type=listed(), metavar="NAME", help="check only these rules")
    parser.add_argument(
        "--actions",
        **LIST,
        metavar="TEXT",
        help="responses to draw from, for an environment without random actions",
    )
    add_env_arguments(parser)
    add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Check the environments one by one; return exit code 1 if one breaks a rule."""
    results: list[EnvCheck] = []
    chosen = _chosen(args)
    with _console.progress("checking", len(chosen)) as advance:
        for id in chosen:
            result = _check(id, args, lambda part: advance(len(results) + part))
            results.append(result)
            if not args.json:
                _show(result)
    if args.json:
        _console.print_json([asdict(result) for result in results])
    return int(any(result.status == "failed" for result in results))


def _chosen(args: argparse.Namespace) -> list[str]:
    from gem_core import list_envs

    if not args.ids and not args.all:
        raise ConfigError("nothing to check; pass an id or a pattern before the options, or --all")
    chosen = list_envs() if args.all else []
    for text in args.ids:
        matching = list_envs(text) if is_pattern(text) else [text]
        if not matching:
            raise ConfigError(f"no environment matches {text!r}; `gem-core envs` lists all")
        chosen += [id for id in matching if id not in chosen]
    return chosen


def _check(id: str, args: argparse.Namespace, advance: Callable[[float], None]) -> EnvCheck:
    from gem_core import spec
    from gem_lab._checker import check_env

    name, kwargs, wrappers = parse_env(id, args.kwargs, args.wrappers)
    try:
        build_env(name, kwargs, wrappers).close()
        env_spec = spec(name)
        env_spec = replace(env_spec, kwargs=env_spec.kwargs | kwargs)  # `check_env` also has a max_turns
        report = check_env(
            env_spec, seeds=range(args.seeds), rules=args.rules, actions=args.actions, keep_going=True,
            on_rule=lambda done, total: advance(done / total), wrappers=wrappers,
        )  # fmt: skip
    except (DataError, MissingDependency, SandboxError) as error:  # missing on this machine
        if not args.all:
            raise
        return EnvCheck(id, "skipped", message=str(error))
    except GemError as error:  # such as an unresponsive server; continue with the others
        if not args.all:
            raise
        return EnvCheck(id, "failed", message=str(error))
    broken = {
        rule: f"{message}\n  {_console.COMMAND}{_command(id, rule, args)}"
        for rule, message in report.broken.items()
    }
    return EnvCheck(
        id,
        "failed" if broken else "ok",
        rules=report.passed,
        not_applicable=tuple(rule for rule in report.skipped if rule not in report.lacking),
        message="\n".join([*broken.values(), *_unchecked(report.unchecked), *_lacking(report.lacking)]),
        broken=broken,
        unchecked=report.unchecked,
        lacking=report.lacking,
    )


def _unchecked(unchecked: dict[str, str]) -> list[str]:
    """Return a line for each broken rule, with the rules that can only be checked once it holds."""
    causes = dict.fromkeys(unchecked.values())
    hidden = {cause: [rule for rule in unchecked if unchecked[rule] == cause] for cause in causes}
    return [f"not checked until {cause} holds: {', '.join(rules)}" for cause, rules in hidden.items()]


def _lacking(lacking: dict[str, str]) -> list[str]:
    return [f"{rule} cannot be checked: {reason}" for rule, reason in lacking.items()]


def _command(id: str, rule: str, args: argparse.Namespace) -> str:
    """Return the command that checks one rule with the same arguments."""
    words = ["gem-core", "check", id, "--seeds", str(args.seeds), "--rules", rule]
    for flag, values in (("--kwargs", args.kwargs), ("--actions", args.actions)):
        words += [flag, *values] if values else []
    return shlex.join([*words, *(["--wrappers", args.wrappers] if args.wrappers else [])])


def _show(result: EnvCheck) -> None:
    if result.status == "ok":
        skipped = f"; not applicable: {', '.join(result.not_applicable)}" if result.not_applicable else ""
        count = len(result.rules)
        text = ("1 rule holds" if count == 1 else f"{count} rules hold") + skipped
        text = "\n".join([text, *_lacking(result.lacking)])
    else:
        text = result.message.removeprefix(f"{result.id}: ")
    styles = {"ok": "green", "failed": "bold red", "skipped": "yellow"}
    _console.print_labeled(f"{result.status:7}", f"{result.id}: {text}", styles[result.status])
