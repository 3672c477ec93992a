"""Check environments of other ecosystems, and write the table of docs/results/bridges.md.

    python tools/foreign_checks.py measure textarena docs/results/bridges.jsonl
    python tools/foreign_checks.py draw docs/results/bridges.jsonl docs/results/bridges.md

`measure` runs in an environment with the extra of that bridge. It appends one line per id, and skips ids that
the file has already, so it can be stopped and restarted. The result of a rule is that of ``gem-core check``.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gem_core
from gem_core.checker import RULES, check_env
from gem_core.errors import GemError

CHECKED = [rule.name for rule in RULES if rule.name != "floor_holds"]
"""The rule left out compares with floors that are documented for our own ids."""
SEEDS = 2
TURNS = {"max_turns": 60}
PACKAGES = {
    "gymnasium": "gymnasium",
    "textarena": "textarena",
    "skyrl": "skyrl-gym",
    "verifiers": "verifiers",
}
ENVS: dict[str, dict[str, dict[str, Any]]] = {
    "gymnasium": dict.fromkeys(
        (
            "Blackjack-v1", "FrozenLake-v1", "CliffWalking-v1", "Taxi-v4", "CartPole-v1", "MountainCar-v0",
            "MountainCarContinuous-v0", "Acrobot-v1", "Pendulum-v1",
        ),
        TURNS,
    ),
    "textarena": dict.fromkeys(
        (
            "2048-v0-ultra-easy", "Bandit-v0", "Blackjack-v0", "ConnectFour-v0", "FifteenPuzzle-v0",
            "FrozenLake-v0", "GuessTheNumber-v0", "IteratedRockPaperScissors-v0", "KuhnPoker-v0",
            "LightsOut-v0", "Mastermind-v0", "Minesweeper-v0-small", "Nim-v0", "Secretary-v0", "Sokoban-v0",
            "TicTacToe-v0", "TowerOfHanoi-v0",
        ),
        TURNS,
    ),
}  # fmt: skip
"""Arguments of the environments, by bridge and name."""


def measure(bridge: str, path: Path) -> None:
    """Check the environments of a bridge that `path` lacks."""
    known = {row["id"] for row in read(path)}
    for name, kwargs in ENVS[bridge].items():
        id = f"{bridge}:{name}"
        if id in known:
            continue
        row: dict[str, Any] = {"id": id, "kwargs": kwargs}
        row |= {"version": version(PACKAGES[bridge]), "python": platform.python_version()}
        try:
            spec = gem_core.spec(id)
            spec = replace(spec, kwargs=spec.kwargs | kwargs)
            report = check_env(spec, seeds=range(SEEDS), rules=CHECKED, keep_going=True)
            row |= {"holds": list(report.passed), "skipped": report.skipped, "broken": report.broken}
        except GemError as error:
            row["error"] = " ".join(str(error).split())
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        sys.stderr.write(f"{id}: {', '.join(row.get('broken', ())) or row.get('error', 'all rules hold')}\n")


def read(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file, sorted by id."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return sorted(map(json.loads, lines), key=lambda row: str(row["id"]))


def draw(rows: list[dict[str, Any]]) -> str:
    """Return the page for the rows of a file."""
    versions = sorted({f"{row['id'].partition(':')[0]} {row['version']}" for row in rows})
    lines = [
        "# Checks of other ecosystems' environments",
        "",
        f"`gem-core check` on {len(rows)} environments, played through the bridges: "
        f"{', '.join(versions)}, Python {rows[0]['python']}, {SEEDS} seeds, at most {TURNS['max_turns']} "
        "turns per episode. The rules are the contract of this library, for which these environments were "
        "not written: a rule that does not hold is a difference to know before training, not necessarily a "
        "fault. The bridges themselves add a turn limit, an isolated random state, and a state by replay, "
        "so rules on these say nothing about the environment alone.",
        "",
        "| environment | rules that hold | not applicable | do not hold |",
        "|---|---|---|---|",
    ]
    for row in rows:
        if "error" in row:
            lines.append(f"| `{row['id']}` | | | cannot be played: {row['error']} |")
            continue
        names = ", ".join(f"`{name}`" for name in row["broken"]) or "none"
        lines.append(f"| `{row['id']}` | {len(row['holds'])} | {len(row['skipped'])} | {names} |")
    lines += ["", "## What was observed", ""]
    statements = {rule.name: rule.statement for rule in RULES}
    for name, statement in statements.items():
        broken = [row for row in rows if name in row.get("broken", {})]
        if not broken:
            continue
        lines += [f"`{name}`: {statement}", ""]
        lines += [f"- `{row['id']}`: {observed(row['broken'][name])}" for row in broken]
        lines.append("")
    example = next((row for row in rows if row.get("broken")), None)
    if example is not None:
        lines += [
            "Each line can be repeated with one command, for example:",
            "",
            "```text",
            f"gem-core check {example['id']} --seeds {SEEDS} --kwargs max_turns={TURNS['max_turns']} "
            f"--rules {next(iter(example['broken']))}",
            "```",
            "",
        ]
    lines += ["`python tools/foreign_checks.py` repeats all of it."]
    return "\n".join(lines) + "\n"


def observed(message: str) -> str:
    """Return the evidence in the message of a broken rule, as Markdown text on one line."""
    evidence = message.partition("\n  observed: ")[2].partition("\n  fix: ")[0]
    text = " ".join(evidence.split())
    return f"`{text.replace('`', chr(39))}`"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, dest="command")
    command = commands.add_parser("measure")
    command.add_argument("bridge", choices=sorted(ENVS))
    command.add_argument("path", type=Path)
    command = commands.add_parser("draw")
    command.add_argument("path", type=Path)
    command.add_argument("page", type=Path)
    args = parser.parse_args()
    if args.command == "measure":
        measure(args.bridge, args.path)
    else:
        args.page.write_text(draw(read(args.path)), encoding="utf-8")


if __name__ == "__main__":
    main()
