"""`gem-core sandbox check`: which isolation levels work on this machine, and what each blocks."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gem_lab._cli import _console
from gem_lab._cli._arguments import LIST, CliCommand, add_json_flag, listed

if TYPE_CHECKING:
    from gem_envs.sandbox._levels import LevelCheck
    from gem_envs.sandbox._selftest.suite import AttackOutcome


COMMAND = CliCommand(
    "attack the sandbox and report what each level blocks",
    examples=["check", "check --level namespace --json"],
    details="Exit code 1 if an attack gets through at level namespace or container, or if a harmless\n"
    "attack is blocked at level none, because the suite would then prove nothing. Harmful attacks\n"
    "never run unconfined. The suite takes about a minute.",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("action", choices=["check"], help="action to take")
    parser.add_argument("--level", **LIST, type=listed(), metavar="NAME", help="test only these levels")
    add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Attack each level; return exit code 1 if an outcome is unexpected."""
    from gem_core._util.checks import check_names
    from gem_envs.sandbox import LEVELS, self_check
    from gem_envs.sandbox._selftest.suite import attack_level

    check_names(args.level or (), LEVELS, kind="sandbox level")
    chosen = args.level or list(LEVELS)
    checks = self_check()
    available = [name for name in chosen if checks[name].available]
    outcomes = []
    with _console.progress("attacking", len(available)) as advance:
        for index, name in enumerate(available):
            outcomes += attack_level(name)
            advance(index + 1)
    unexpected = [o for o in outcomes if o.unexpected]
    missing = [name for name in args.level or () if not checks[name].available]
    if args.json:
        _print_json(checks, chosen, outcomes, unexpected)
    else:
        _print_text(checks, chosen, outcomes, unexpected)
    return int(bool(unexpected or missing))


def _print_json(
    checks: dict[str, LevelCheck],
    chosen: list[str],
    outcomes: list[AttackOutcome],
    unexpected: list[AttackOutcome],
) -> None:
    from gem_envs.sandbox import LEVELS

    levels = [
        {
            **checks[name]._asdict(),
            "does_not_block": LEVELS[name].does_not_block,
            "attacks": [
                {"attack": o.attack, "verdict": o.verdict, "evidence": o.evidence}
                for o in outcomes
                if o.level == name
            ],
        }
        for name in chosen
    ]
    _console.print_json({"ok": not unexpected, "levels": levels})


def _print_text(
    checks: dict[str, LevelCheck],
    chosen: list[str],
    outcomes: list[AttackOutcome],
    unexpected: list[AttackOutcome],
) -> None:
    from gem_envs.sandbox import LEVELS

    rows = [(name, "yes" if checks[name].available else "no", checks[name].reason) for name in chosen]
    _console.print_table(["level", "available", "why"], rows)
    _console.print_text()
    levels = [name for name in chosen if checks[name].available]
    verdicts = {(o.attack, o.level): o.verdict for o in outcomes}
    attacks = list(dict.fromkeys(o.attack for o in outcomes))
    _console.print_table(
        ["attack", *levels],
        [[attack, *(verdicts[attack, level] for level in levels)] for attack in attacks],
    )
    for name in chosen:
        _console.print_text(f"\n{name} does not block:")
        for line in LEVELS[name].does_not_block:
            _console.print_text(f"  - {line}")
    _console.print_text()
    for outcome in unexpected:
        _console.print_text(
            f"UNEXPECTED: {outcome.attack} at level {outcome.level}: {outcome.verdict} ({outcome.evidence})"
        )
    if not unexpected:
        _console.print_text("ok: " + _summary(outcomes))


def _summary(outcomes: list[AttackOutcome]) -> str:
    parts = []
    for level in dict.fromkeys(o.level for o in outcomes):
        mine = [o.verdict for o in outcomes if o.level == level]
        counts = [
            f"{mine.count(verdict)} {verdict}" for verdict in ("blocked", "gets through") if verdict in mine
        ]
        parts.append(f"{level}: {', '.join(counts)}")
    return "; ".join(parts)
