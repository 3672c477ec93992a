"""Measure environments, and write the tables of their pages in the documentation.

    python tools/env_tables.py measure "game:*" docs/results/games.jsonl --episodes 1000
    python tools/env_tables.py fill docs/environments/games.md docs/results/games.jsonl
    gem-core eval --model random --env 'game:*' --episodes 500 --out runs/random
    python tools/env_tables.py verify runs/random docs/results/*.jsonl

`measure` plays each id with its random and its oracle player on the evaluation seeds from 0 on, and appends
one line per id to the file. It skips ids that the file already has with at least as many episodes and with
the same fingerprint (see `gem_lab._checker.fingerprint`), so it can be stopped and restarted. `fill` writes
the parts of a page between ``<!-- table: PATTERN -->``, ``<!-- rules: PATTERN -->``,
``<!-- data: PATTERN -->``, or ``<!-- floors: PATTERN -->`` and ``<!-- end -->``.
The first two list the ids that can be created without further arguments, the third the ids that read a data
set, and the fourth the ids whose floor (see tools/floors.py) is above `HIGH`. `verify` compares an evaluation
of ``random`` or ``oracle`` with the figures, and fails if they differ by more than `ERRORS` standard errors.
If returns are skewed, this requires several hundred episodes.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import gem_core
from gem_core import Env
from gem_lab._checker.fingerprint import fingerprint
from gem_lab._checker.floors import documented

EPISODES = 1000
"""Number of episodes stated on the pages; rows with another number mention it."""
ERRORS = 3
HIGH = 0.05
"""Floors above this value are listed."""
PAGES = {
    "games.md": "games.jsonl",
    "webshop.md": "webshop.jsonl",
    "vision.md": "vision.jsonl",
    "databases.md": "databases.jsonl",
    "terminal.md": "terminal.jsonl",
    "reasoning-gym.md": "datasets.jsonl",
    **{f"{page}.md": "datasets.jsonl" for page in ("datasets", "math", "logic", "qa", "code")},
}
"""Files of docs/results with the records of the tables, by page of docs/environments."""
MARKED = re.compile(r"(<!-- (table|rules|data|floors): (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def play(env: Env, episodes: int, choose: Callable[[Env], str | None]) -> dict[str, float] | None:
    """Return means over episodes, or None if the player has no move at the start of the first episode."""
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
    """Append the figures of each id that the file lacks or has with another fingerprint."""
    known = read(out)
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True).strip()
    for id in gem_core.list_envs(pattern):
        last = known.get(id, {})
        with gem_core.make(id) as env:
            marks = fingerprint(env)
            if last.get("episodes", 0) >= episodes and last.get("fingerprint") == marks:
                continue
            record = {
                "id": id,
                "episodes": episodes,
                "fingerprint": marks,
                "random": play(env, episodes, lambda env: env.sample_random_action()),
                "oracle": play(env, episodes, lambda env: env.oracle_action()),
                "commit": commit,
            }
        with out.open("a") as file:
            file.write(json.dumps(record) + "\n")


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Return the latest figures of each id."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {record["id"]: record for record in map(json.loads, lines)}


def differences(summary: dict[str, Any], records: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return the differences between an evaluation of a player and the documentation, by id.

    The oracle must reach `max_return` if it is stated and certain. Other means may differ by `ERRORS`
    standard errors of both measurements combined.

    Args:
        summary: ``summary.json`` of the evaluation; ids without a record are skipped.
        records: Figures by id, as `read` returns them.
    """
    player, messages = summary["model"], {}
    for id, values in summary["envs"].items():
        if id not in records or records[id][player] is None:
            continue
        with gem_core.make(id) as env:
            best, certain = env.max_return, env.oracle_certain
        mean, episodes = values["return"]["mean"], values["episodes"]
        if player == "oracle" and certain and best is not None:
            if abs(mean - best) > 1e-6:
                messages[id] = f"the oracle earned {mean:g}, the best return is {best:g}"
            continue
        stated = records[id][player]["return"]
        variance = (values["return"]["se"] or 0.0) ** 2
        if not variance:  # all returns are equal, so a rarer return may be missing
            variance = abs(mean - stated) * (best or 1.0) / episodes
        variance *= 1 + episodes / records[id]["episodes"]
        if abs(mean - stated) > max(ERRORS * variance**0.5, 1e-6):
            messages[id] = (
                f"{player} earned {mean:.4g} ± {variance**0.5:.2g}, its documentation says {stated:.4g}"
            )
    return messages


def verify(run: Path, files: list[Path]) -> None:
    """Print the differences of a run, and exit with 1 if there are any."""
    summary = json.loads((run / "summary.json").read_text())
    records = {id: record for path in files for id, record in read(path).items()}
    messages = differences(summary, records)
    known = sum(id in records for id in summary["envs"])
    lines = [f"{id}: {what}" for id, what in messages.items()]
    lines.append(f"{known} of {len(summary['envs'])} ids have figures, {len(messages)} differ")
    sys.stdout.write("\n".join(lines) + "\n")
    if messages or not known:
        raise SystemExit(1)


def fill(text: str, records: dict[str, dict[str, Any]]) -> str:
    """Return the page with up-to-date tables."""

    def replace(match: re.Match[str]) -> str:
        make = {"table": table, "rules": rules, "data": data, "floors": floors}[match[2]]
        return f"{match[1]}{make(gem_core.list_envs(match[3]), records)}\n{match[4]}"

    return MARKED.sub(replace, text)


def table(ids: Iterable[str], records: dict[str, dict[str, Any]]) -> str:
    """Return a table of arguments, best return, and returns of the players, one row per id."""
    lines = [
        "| id | arguments | best | floor "
        "| oracle: return (success), turns | random: return (success), turns |",
        "|---|---|---|---|---|---|",
    ]
    for id in ids:
        if id not in records and "dataset_name" in gem_core.spec(id).kwargs:
            continue
        if id not in records:
            raise SystemExit(f"{id} has no record: run `make records ID={id}`")
        with gem_core.make(id) as env:
            best = "varies" if env.max_return is None else f"{env.max_return:g}"
        arguments = ", ".join(f"{key}={value!r}" for key, value in gem_core.spec(id).kwargs.items()) or "none"
        players = " | ".join(figures(records[id][player]) for player in ("oracle", "random"))
        if records[id]["episodes"] != EPISODES:
            players += f", {records[id]['episodes']} episodes"
        lines.append(f"| `{id}` | `{arguments}` | {best} | {floor(id)} | {players} |")
    return "\n".join(lines)


def floor(id: str) -> str:
    """Return the best success rate of the players that solve nothing."""
    measured = documented(gem_core.spec(id))
    return "not measured" if measured is None else f"{measured.success:.3f}"


def floors(ids: Iterable[str], records: dict[str, dict[str, Any]]) -> str:
    """Return a table of the ids whose floor is above `HIGH`, highest first."""
    known = [(measured, id) for id in ids if (measured := documented(gem_core.spec(id))) is not None]
    lines = ["| id | floor | player that reaches it |", "|---|---|---|"]
    for measured, id in sorted(known, key=lambda row: (-row[0].success, row[1])):
        if measured.success > HIGH:
            lines.append(f"| `{id}` | {measured.success:.3f} | `{measured.policy}` |")
    return "\n".join(lines)


def data(ids: Iterable[str], records: dict[str, dict[str, Any]]) -> str:
    """Return a table of the ids that read a dataset, with the dataset and the fields used."""
    lines = ["| id | dataset | split | columns |", "|---|---|---|---|"]
    for id in ids:
        kwargs = gem_core.spec(id).kwargs
        if name := kwargs.get("dataset_name"):
            columns = ", ".join(f"`{value}`" for key, value in kwargs.items() if key.endswith("_key"))
            lines.append(f"| `{id}` | {name} | {kwargs.get('split') or 'the only one'} | {columns} |")
    return "\n".join(lines)


def figures(means: dict[str, float] | None) -> str:
    """Return the results of one player as text."""
    if means is None:
        return "none"
    return f"{means['return']:.3f} ({means['success']:.3f}), {means['turns']:.1f}"


def rules(ids: Iterable[str], records: dict[str, dict[str, Any]]) -> str:
    """Return a table of actions and rewards from the docstrings of the environments, one row per class."""
    classes: dict[str, type] = {}
    for id in ids:
        if "dataset_name" in gem_core.spec(id).kwargs:
            continue
        with gem_core.make(id) as env:
            kind = type(env.unwrapped)
        name = id.partition(":")[2].partition("-v0")[0] if "-v0" in id else kind.__name__
        classes.setdefault(name, kind)
    lines = ["| environment | action | rewards |", "|---|---|---|"]
    for name, kind in classes.items():
        lines.append(f"| {name} | {paragraph(kind, 'Action: ')} | {paragraph(kind, 'Rewards: ')} |")
    return "\n".join(lines)


def paragraph(kind: type, head: str) -> str:
    """Return the paragraph of a docstring that begins with `head`, as one line of Markdown."""
    for part in (inspect.getdoc(kind) or "").split("\n\n"):
        if part.startswith(head):
            return " ".join(part.removeprefix(head).split()).replace("``", "`").replace("|", "\\|")
    raise SystemExit(
        f"the docstring of {kind.__module__}.{kind.__qualname__} has no paragraph that begins with {head!r}: "
        "write it, because the table of rules in docs/environments quotes it"
    )


def main() -> None:
    """Run the command line."""
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
