"""Check environments of other ecosystems, and write the table of docs/results/bridges.md.

    python tools/foreign_checks.py measure textarena docs/results/bridges.jsonl
    python tools/foreign_checks.py draw docs/results/bridges.jsonl docs/results/bridges.md

`measure` runs in an environment with the extra of that bridge. It appends one line per id, and skips ids that
the file has already, so it can be stopped and restarted. The result of a rule is that of ``gem-core check``.
For ``openenv``, the folder ``envs`` of a checkout of OpenEnv is on PYTHONPATH, and an id such as
``openenv:URL(game:Wordle-v0)`` stands for the address of a server of that environment.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gem_core
from gem_core.errors import GemError
from gem_lab import check_env
from gem_lab._checker import RULES

CHECKED = [rule.name for rule in RULES if rule.name != "floor_holds"]
"""All rules but one, which compares with floors that are documented only for our own ids."""
SEEDS = 2
OPENENV_COMMIT = "685de41"
TURNS = {"max_turns": 60}
PACKAGES = {
    "gymnasium": "gymnasium",
    "openenv": "openenv",
    "textarena": "textarena",
    "skyrl": "skyrl-gym",
    "verifiers": "verifiers",
}
SUMS: list[dict[str, Any]] = [
    {
        "prompt": [{"role": "user", "content": f"What is {n} + 1? End with #### ANSWER."}],
        "reward_spec": {"ground_truth": str(n + 1)},
        "reward_model": {"ground_truth": str(n + 1)},
        "extra_info": {"max_turns": 3},
    }
    for n in range(8)
]
"""Rows for SkyRL's environments, which hold no tasks."""

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
    "openenv": dict.fromkeys(
        (
            "connect4_env.server.connect4_environment:Connect4Environment",
            "echo_env.server.echo_environment:EchoEnvironment",
            "grid_world_env.server.grid_world_environment:GridWorldEnvironment",
            "maze_env.server.maze_env_environment:MazeEnvironment",
            "URL(game:GuessTheNumber-v0-easy)", "URL(game:Wordle-v0)",
        ),
        TURNS,
    ),
    "skyrl": {name: {"rows": SUMS} for name in ("aime", "gsm8k", "gsm8k_multi_turn")},
    "verifiers": {
        "gem-verifiers": {"config": {"env_id": "game:GuessTheNumber-v0-easy"}},
    },
}  # fmt: skip
"""Arguments of the environments, by bridge and name."""

ACTIONS: dict[str, list[str]] = {
    "skyrl": ["#### 5", "#### 7", "Answer: 5", "I do not know."],
    "verifiers": [r"\boxed{5}", r"\boxed{7}", "I do not know."],
}
"""Responses of the random player, for bridges whose environments have none."""


def measure(bridge: str, path: Path) -> None:
    """Check the environments of a bridge that `path` lacks."""
    known = {row["id"] for row in read(path)}
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True).strip()
    command = f"python tools/foreign_checks.py measure {bridge} {path}"
    for name, kwargs in ENVS[bridge].items():
        id = f"{bridge}:{name}"
        if id in known:
            continue
        row: dict[str, Any] = {"id": id, "kwargs": kwargs}
        row |= {"version": version(PACKAGES[bridge]), "python": platform.python_version()}
        row |= {"commit": commit, "command": command}
        try:
            with address(name) as source:
                spec = gem_core.spec(f"{bridge}:{source}")
                spec = replace(spec, kwargs=spec.kwargs | kwargs)
                report = check_env(
                    spec,
                    seeds=range(SEEDS),
                    rules=CHECKED,
                    actions=ACTIONS.get(bridge),
                    keep_going=True,
                )
            row |= {"holds": list(report.passed), "skipped": report.skipped, "broken": report.broken}
        except GemError as error:
            row["error"] = " ".join(str(error).split())
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        sys.stderr.write(f"{id}: {', '.join(row.get('broken', ())) or row.get('error', 'all rules hold')}\n")


@contextlib.contextmanager
def address(name: str) -> Iterator[str]:
    """Yield a name; for ``URL(ID)``, the address of a server of that environment."""
    if not name.startswith("URL("):
        yield name
        return
    command = [sys.executable, "-m", "gem_lab", "serve", "openenv", name[4:-1], "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().split()[-1]
        finally:
            server.kill()


def read(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file, sorted by id."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return sorted(map(json.loads, lines), key=lambda row: str(row["id"]))


def draw(rows: list[dict[str, Any]]) -> str:
    """Return the page for the rows of a file."""
    versions = sorted({f"{row['id'].partition(':')[0]} {row['version']}" for row in rows})
    commits = sorted({row["commit"] for row in rows})
    lines = [
        "# Checks of other ecosystems' environments",
        "",
        f"`gem-core check` on {len(rows)} environments, played through the bridges: "
        f"{', '.join(versions)}, Python {rows[0]['python']}, gem-core at {' and '.join(commits)}, {SEEDS} "
        f"seeds, at most {TURNS['max_turns']} turns per episode. The rules are the contract of this library, "
        "for which these environments were not written: a rule that does not hold is a difference to know "
        "before training, not necessarily a fault. The bridges themselves add a turn limit, an isolated "
        "random state, and a state by replay, so rules on these say nothing about the environment alone.",
        "",
        f"The environments of OpenEnv are those of its repository at commit {OPENENV_COMMIT}, in process; "
        "`openenv:URL(ID)` is our own server of that environment. The rows and responses for SkyRL and "
        "verifiers are in `tools/foreign_checks.py`.",
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
    example = next((row for row in rows if row.get("broken") and row["kwargs"] == TURNS), None)
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
