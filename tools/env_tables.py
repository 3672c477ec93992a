"""Measure environments, and write the tables of their pages in the documentation.

    python tools/env_tables.py measure "game:*" docs/results/games.jsonl --episodes 1000
    python tools/env_tables.py fill docs/environments/games.md docs/results/games.jsonl
    gem-core eval --model random --envs 'game:*' --episodes 500 --out runs/random
    python tools/env_tables.py verify runs/random docs/results/*.jsonl

`measure` plays each id with its random and its oracle player on the evaluation seeds from 0 on, and
appends a line for each to the file; ids that are there with at least as many episodes are passed over, so it
can be stopped and started again. `fill` writes what stands between ``<!-- table: PATTERN -->``,
``<!-- rules: PATTERN -->``, ``<!-- data: PATTERN -->`` or ``<!-- floors: PATTERN -->`` and ``<!-- end -->``
on a page. The first two take the ids that can be made as they are, the third those that read a data set, the
fourth those whose floor (see tools/floors.py) is above `HIGH`. `verify` holds an evaluation of ``random`` or
``oracle`` against the figures; more than `ERRORS` standard errors off is a failure. That takes some hundred
episodes where returns are skewed.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import gem_core
from gem_core import Env
from gem_core.checker.floors import documented

EPISODES = 1000
"""The number that a page speaks of; a row with another one says so."""
ERRORS = 3
HIGH = 0.05
"""A floor above this one is listed."""
MARKED = re.compile(r"(<!-- (table|rules|data|floors): (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def play(env: Env, episodes: int, choose: Callable[[Env], str | None]) -> dict[str, float] | None:
    """Means over episodes; None when the player knows no move at the start of the first."""
    total = wins = turns = 0.0
    for seed in range(episodes):
        env.reset(seed=seed)
        while True:
            action = choose(env)
            if action is None:
                if not seed and not turns:
                    return None
                action = env.sample_random_action()
            _, reward, terminated, truncated, info = env.step(action)
            total += reward
            turns += 1
            if terminated or truncated:
                wins += info["success"]
                break
    return {"return": total / episodes, "success": wins / episodes, "turns": turns / episodes}


def measure(pattern: str, out: Path, episodes: int) -> None:
    """Append the figures of each id that is not there yet."""
    known = read(out)
    for id in gem_core.list_envs(pattern):
        if known.get(id, {}).get("episodes", 0) >= episodes:
            continue
        with gem_core.make(id) as env:
            record = {
                "id": id,
                "episodes": episodes,
                "random": play(env, episodes, lambda env: env.sample_random_action()),
                "oracle": play(env, episodes, lambda env: env.oracle_action()),
            }
        with out.open("a") as file:
            file.write(json.dumps(record) + "\n")


def read(path: Path) -> dict[str, dict[str, Any]]:
    """The last figures of each id."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {record["id"]: record for record in map(json.loads, lines)}


def differences(summary: dict[str, Any], records: dict[str, dict[str, Any]]) -> dict[str, str]:
    """What an evaluation of a player has other than its documentation says, by id.

    The oracle has to reach `max_return` where it is stated and certain. Other means may be `ERRORS`
    standard errors apart, of both measurements together.

    Args:
        summary: ``summary.json`` of the evaluation; ids without a record are passed over.
        records: As `read` gives them.
    """
    player, found = summary["model"], {}
    for id, values in summary["envs"].items():
        if id not in records or records[id][player] is None:
            continue
        with gem_core.make(id) as env:
            best, certain = env.max_return, env.oracle_certain
        mean, episodes = values["return"]["mean"], values["episodes"]
        if player == "oracle" and certain and best is not None:
            if abs(mean - best) > 1e-6:
                found[id] = f"the oracle earned {mean:g}, the best return is {best:g}"
            continue
        stated = records[id][player]["return"]
        variance = (values["return"]["se"] or 0.0) ** 2
        if not variance:  # all earned the same: a return that is rarer than they are many may be missing
            variance = abs(mean - stated) * (best or 1.0) / episodes
        variance *= 1 + episodes / records[id]["episodes"]
        if abs(mean - stated) > max(ERRORS * variance**0.5, 1e-6):
            found[id] = (
                f"{player} earned {mean:.4g} ± {variance**0.5:.2g}, its documentation says {stated:.4g}"
            )
    return found


def verify(run: Path, files: list[Path]) -> None:
    """Print the differences of a run, and exit with 1 where there are any."""
    summary = json.loads((run / "summary.json").read_text())
    records = {id: record for path in files for id, record in read(path).items()}
    found = differences(summary, records)
    known = sum(id in records for id in summary["envs"])
    lines = [f"{id}: {what}" for id, what in found.items()]
    lines.append(f"{known} of {len(summary['envs'])} ids have figures, {len(found)} differ")
    sys.stdout.write("\n".join(lines) + "\n")
    if found or not known:
        raise SystemExit(1)


def fill(text: str, records: dict[str, dict[str, Any]]) -> str:
    """The page with its tables as they ought to be."""

    def replace(match: re.Match[str]) -> str:
        make = {"table": table, "rules": rules, "data": data, "floors": floors}[match[2]]
        return f"{match[1]}{make(gem_core.list_envs(match[3]), records)}\n{match[4]}"

    return MARKED.sub(replace, text)


def table(ids: Iterable[str], records: dict[str, dict[str, Any]]) -> str:
    """A row for each id: arguments, best return, and what the players earn."""
    lines = [
        "| id | arguments | best | floor "
        "| oracle: return (success), turns | random: return (success), turns |",
        "|---|---|---|---|---|---|",
    ]
    for id in ids:
        if id not in records and "dataset_name" in gem_core.spec(id).kwargs:
            continue
        with gem_core.make(id) as env:
            best = "varies" if env.max_return is None else f"{env.max_return:g}"
        arguments = ", ".join(f"{key}={value!r}" for key, value in gem_core.spec(id).kwargs.items()) or "none"
        players = " | ".join(figures(records[id][player]) for player in ("oracle", "random"))
        if records[id]["episodes"] != EPISODES:
            players += f", {records[id]['episodes']} episodes"
        lines.append(f"| `{id}` | `{arguments}` | {best} | {floor(id)} | {players} |")
    return "\n".join(lines)


def floor(id: str) -> str:
    """Best success of the players that solve nothing."""
    found = documented(gem_core.spec(id))
    return "not measured" if found is None else f"{found.success:.3f}"


def floors(ids: Iterable[str], records: dict[str, dict[str, Any]]) -> str:
    """A row for each id whose floor is above `HIGH`, the highest first."""
    known = [(found, id) for id in ids if (found := documented(gem_core.spec(id))) is not None]
    lines = ["| id | floor | answer that reaches it |", "|---|---|---|"]
    for found, id in sorted(known, key=lambda row: (-row[0].success, row[1])):
        if found.success > HIGH:
            lines.append(f"| `{id}` | {found.success:.3f} | `{found.policy}` |")
    return "\n".join(lines)


def data(ids: Iterable[str], records: dict[str, dict[str, Any]]) -> str:
    """A row for each id that reads a data set: which, and what it takes from a row."""
    lines = ["| id | dataset | split | columns |", "|---|---|---|---|"]
    for id in ids:
        kwargs = gem_core.spec(id).kwargs
        if name := kwargs.get("dataset_name"):
            columns = ", ".join(f"`{value}`" for key, value in kwargs.items() if key.endswith("_key"))
            lines.append(f"| `{id}` | {name} | {kwargs.get('split') or 'the only one'} | {columns} |")
    return "\n".join(lines)


def figures(means: dict[str, float] | None) -> str:
    """What one player earned."""
    if means is None:
        return "none"
    return f"{means['return']:.3f} ({means['success']:.3f}), {means['turns']:.1f}"


def rules(ids: Iterable[str], records: dict[str, dict[str, Any]]) -> str:
    """A row for each class behind the ids: how to act and what is paid, from its docstring."""
    classes: dict[str, type] = {}
    for id in ids:
        if "dataset_name" in gem_core.spec(id).kwargs:
            continue
        with gem_core.make(id) as env:
            found = type(env.unwrapped)
        name = id.partition(":")[2].partition("-v0")[0] if "-v0" in id else found.__name__
        classes.setdefault(name, found)
    lines = ["| environment | action | rewards |", "|---|---|---|"]
    for name, found in classes.items():
        parts = inspect.getdoc(found).split("\n\n")
        lines.append(f"| {name} | {paragraph(parts, 'Action: ')} | {paragraph(parts, 'Rewards: ')} |")
    return "\n".join(lines)


def paragraph(parts: list[str], head: str) -> str:
    """The paragraph that begins with `head`, as one line of Markdown."""
    text = next(part for part in parts if part.startswith(head)).removeprefix(head)
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("measure")
    one.add_argument("pattern")
    one.add_argument("out", type=Path)
    one.add_argument("--episodes", type=int, default=EPISODES)
    two = commands.add_parser("fill")
    two.add_argument("page", type=Path)
    two.add_argument("records", type=Path)
    three = commands.add_parser("verify")
    three.add_argument("run", type=Path)
    three.add_argument("records", type=Path, nargs="+")
    args = parser.parse_args()
    if args.command == "measure":
        measure(args.pattern, args.out, args.episodes)
    elif args.command == "verify":
        verify(args.run, args.records)
    else:
        args.page.write_text(fill(args.page.read_text(), read(args.records)))


if __name__ == "__main__":
    main()
