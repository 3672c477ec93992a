"""Measure how often players that solve nothing succeed, and write the floors that the package documents.

    python tools/floors.py measure '*' docs/results/floors.jsonl.gz --seeds 200 --workers 2
    python tools/floors.py write docs/results/floors.jsonl.gz gem_lab/_checker/floors.json

`measure` plays the null policies of `gem_lab._checker.null_policies` on the seeds from 0 on, and writes one
line per id: the success rate and the mean return of each policy, in each form that the environment can read
on the first three seeds, and the fingerprint of the environment. The line also has the most successful of
the players that repeat the oracle's actions of another seed, and how many such players there are. `measure`
skips ids that the file already has with at least as many seeds, so it can be stopped and restarted, and
measures only the missing players of an id that has not changed; `--again` measures everything again.
`write` takes the best player of each id.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import gem_core
from gem_core._util.files import write_atomically
from gem_core.errors import DataError, MissingDependency
from gem_lab._checker.fingerprint import fingerprint
from gem_lab._checker.null_policies import FORMS, POLICIES, NullOutcome, play, readable_forms, replays

SEEDS = 200
TRIAL_SEEDS = 3
"""Number of seeds on which every form is tried."""


def measured(id: str, seeds: int, known: dict[str, Any]) -> dict[str, Any] | None:
    """Return the results of each player, or None if this machine lacks the data.

    Args:
        id: Environment.
        seeds: Number of episodes per player.
        known: Record whose players are not measured again if the environment is still the same.
    """
    start = time.perf_counter()
    try:
        env = gem_core.make(id)
    except (DataError, MissingDependency) as error:
        sys.stderr.write(f"{id} was skipped: {error}\n")
        return None
    with env:
        marks = fingerprint(env)
        same = known.get("seeds") == seeds and known["fingerprint"] == marks
        record = known if same else {"success, return": {}}
        means = record["success, return"]
        policies = {
            name: POLICIES[name] for name in POLICIES if any(name not in row for row in means.values())
        }
        certain = gem_core.spec(id).deterministic  # otherwise a seed has no answer that could be repeated
        others = replays(env) if certain and "replays" not in record else {}
        forms: list[str] = list(means)
        outcomes: list[NullOutcome] = []
        for seed in range(seeds):
            trial = not same and seed < TRIAL_SEEDS
            outcomes += play(
                env,
                seed,
                forms=FORMS if trial else forms,
                policies=policies if same else POLICIES,
                replays=others,
            )
            if trial:
                forms = readable_forms(outcomes)
    played: dict[str, dict[str, list[tuple[bool, float]]]] = defaultdict(lambda: defaultdict(list))
    for outcome in outcomes:
        form = "replay" if outcome.policy in others else outcome.form
        played[form][outcome.policy].append((outcome.success, outcome.total_reward))
    found = {
        form: {policy: [round(sum(column) / seeds, 4) for column in zip(*values, strict=True)]
               for policy, values in players.items()}
        for form, players in played.items()
    }  # fmt: skip
    repeated = found.pop("replay", {})
    best = max(repeated, key=lambda name: repeated[name], default=None)
    seconds = round(time.perf_counter() - start, 1)
    return {
        "id": id, "seeds": seeds, "seconds": seconds, "fingerprint": marks,
        "success, return": {form: means.get(form, {}) | found.get(form, {}) for form in forms},
        "replays": record.get("replays", len(others)),
        "best replay": record.get("best replay", best and [best, *repeated[best]]),
    }  # fmt: skip


def measure(pattern: str, out: Path, seeds: int, workers: int, again: bool) -> None:
    """Write a line for each id that the file lacks or whose line lacks a player."""
    known = {} if again else read(out)
    ids = [
        id
        for id in gem_core.list_envs(pattern)
        if "dataset_name" not in gem_core.spec(id).kwargs and not complete(known.get(id, {}), seeds)
    ]
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True).strip()
    command = f"python tools/floors.py measure {pattern!r} {out} --seeds {seeds} --workers {workers}"
    for record in records(ids, seeds, workers, known):
        if record is not None:
            with gzip.open(out, "at") as file:  # a complete member, so that a killed run leaves a valid file
                file.write(json.dumps({**record, "commit": commit, "command": command}) + "\n")
    lines = "".join(json.dumps(record) + "\n" for _, record in sorted(read(out).items()))
    write_atomically(out, [gzip.compress(lines.encode(), mtime=0)])


def complete(record: dict[str, Any], seeds: int) -> bool:
    """Return whether a record has all players on at least `seeds` seeds."""
    forms = record.get("success, return", {}).values()
    return (
        record.get("seeds", 0) >= seeds
        and "replays" in record
        and all(players.keys() == POLICIES.keys() for players in forms)
    )


def records(
    ids: list[str], seeds: int, workers: int, known: dict[str, dict[str, Any]]
) -> Iterator[dict[str, Any] | None]:
    """Yield the results of `measured` as they become available."""
    if workers == 1:
        yield from (measured(id, seeds, known.get(id, {})) for id in ids)
        return
    with ProcessPoolExecutor(workers) as pool:
        for done in as_completed([pool.submit(measured, id, seeds, known.get(id, {})) for id in ids]):
            yield done.result()


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Return the last line of each id."""
    if not path.exists():
        return {}
    with gzip.open(path, "rt") as lines:
        return {record["id"]: record for record in map(json.loads, lines)}


def floor(record: dict[str, Any]) -> list[Any]:
    """Return the best success rate, the player that reached it, and the number of seeds."""
    shares = {
        FORMS[form] % policy: values[0]
        for form, players in record["success, return"].items()
        for policy, values in sorted(players.items(), key=lambda row: list(POLICIES).index(row[0]))
    }
    if replay := record.get("best replay"):
        shares[replay[0]] = replay[1]
    best = max(shares, key=lambda player: shares[player], default="")
    return [shares[best], best.replace("\n", " "), record["seeds"]] if best and shares[best] else [
        0.0, None, record["seeds"]
    ]  # fmt: skip


def write(source: Path, out: Path) -> None:
    """Write the floors, one line per id."""
    lines = (f"{json.dumps(id)}: {json.dumps(floor(record))}" for id, record in sorted(read(source).items()))
    write_atomically(out, ["{\n", ",\n".join(lines), "\n}\n"])


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("measure")
    one.add_argument("pattern")
    one.add_argument("out", type=Path)
    one.add_argument("--seeds", type=int, default=SEEDS)
    one.add_argument("--workers", type=int, default=2)
    one.add_argument("--again", action="store_true", help="measure again the ids that the file already has")
    two = commands.add_parser("write")
    two.add_argument("records", type=Path)
    two.add_argument("out", type=Path)
    args = parser.parse_args()
    if args.command == "measure":
        measure(args.pattern, args.out, args.seeds, args.workers, args.again)
    else:
        write(args.records, args.out)


if __name__ == "__main__":
    main()
