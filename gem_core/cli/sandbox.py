"""`gem-core sandbox check`: which levels of isolation work here, and what each of them stops."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gem_core.cli import _console
from gem_core.cli._arguments import add_json_flag, command_parser

if TYPE_CHECKING:
    from gem_core.sandbox import Check
    from gem_core.sandbox.escape import Outcome


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = command_parser(
        commands,
        "sandbox",
        "attack the sandbox and say what each level stops",
        examples=["check", "check --level namespace --json"],
        details="Exit code 1 when an attack gets through at namespace or container, or when one that does\n"
        "no harm does not get through at none: then the suite proves nothing. Attacks that do harm are\n"
        "never run where nothing holds them. The suite takes about a minute.",
    )
    parser.add_argument("action", choices=["check"], help="what to do")
    parser.add_argument("--level", action="append", metavar="NAME", help="this level only (repeatable)")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Attack one level after the other; exit code 1 when the outcome is not as it has to be."""
    from gem_core.errors import ConfigError
    from gem_core.sandbox import LEVELS, self_check
    from gem_core.sandbox.escape import attack_level

    for name in args.level or ():
        if name not in LEVELS:
            raise ConfigError(f"no sandbox level {name!r}; there are: {', '.join(LEVELS)}")
    chosen = args.level or list(LEVELS)
    checks = self_check()
    outcomes = [o for name in chosen if checks[name].available for o in attack_level(name)]
    wrong = [o for o in outcomes if _is_wrong(o)]
    missing = [name for name in args.level or () if not checks[name].available]
    if args.json:
        _print_json(checks, chosen, outcomes, wrong)
    else:
        _print_text(checks, chosen, outcomes, wrong)
    return int(bool(wrong or missing))


def _is_wrong(outcome: Outcome) -> bool:
    if outcome.level in ("namespace", "container"):
        return outcome.verdict == "gets through"
    return outcome.level == "none" and outcome.verdict == "blocked"


def _print_json(
    checks: dict[str, Check], chosen: list[str], outcomes: list[Outcome], wrong: list[Outcome]
) -> None:
    from gem_core.sandbox import LEVELS

    levels = [
        {
            **checks[name]._asdict(),
            "does_not_block": LEVELS[name].does_not_block,
            "attacks": [
                {"attack": o.attack, "verdict": o.verdict, "seen": o.seen}
                for o in outcomes
                if o.level == name
            ],
        }
        for name in chosen
    ]
    _console.print_json({"ok": not wrong, "levels": levels})


def _print_text(
    checks: dict[str, Check], chosen: list[str], outcomes: list[Outcome], wrong: list[Outcome]
) -> None:
    from gem_core.sandbox import LEVELS

    rows = [(name, "yes" if checks[name].available else "no", checks[name].reason) for name in chosen]
    _console.print_table(["level", "available", "why"], rows)
    print()
    levels = [name for name in chosen if checks[name].available]
    verdicts = {(o.attack, o.level): o.verdict for o in outcomes}
    attacks = list(dict.fromkeys(o.attack for o in outcomes))
    _console.print_table(
        ["attack", *levels],
        [[attack, *(verdicts[attack, level] for level in levels)] for attack in attacks],
    )
    for name in chosen:
        print(f"\n{name} does not stop:")
        for line in LEVELS[name].does_not_block:
            print(f"  - {line}")
    print()
    for outcome in wrong:
        print(f"WRONG: {outcome.attack} at level {outcome.level}: {outcome.verdict} ({outcome.seen})")
    if not wrong:
        print("ok: " + _summary(outcomes))


def _summary(outcomes: list[Outcome]) -> str:
    parts = []
    for level in dict.fromkeys(o.level for o in outcomes):
        mine = [o.verdict for o in outcomes if o.level == level]
        counts = [
            f"{mine.count(verdict)} {verdict}" for verdict in ("blocked", "gets through") if verdict in mine
        ]
        parts.append(f"{level}: {', '.join(counts)}")
    return "; ".join(parts)
