"""Measure environments of this package, and write every record and table that they need.

    python tools/records.py 'game:NewGame-v0*'
    make records ID='game:NewGame-v0*'

`docs/results/NAME.jsonl` gets the returns of the random and the oracle player (see tools/env_tables.py), and
`docs/results/floors.jsonl.gz` the success rates of the players that solve nothing (see tools/floors.py), on
as many seeds as the other ids with this prefix. The results go to the tables in `docs/environments` and to
`gem_lab/_checker/floors.json`. An id whose prompts and rewards are those of its records is not measured
again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import env_tables
import floors

import gem_core
from gem_lab._checker.fingerprint import fingerprint

ROOT = Path(__file__).resolve().parent.parent
RESULTS, PAGES = ROOT / "docs" / "results", ROOT / "docs" / "environments"
SOURCE, FLOORS = RESULTS / "floors.jsonl.gz", ROOT / "gem_lab" / "_checker" / "floors.json"


def file_of(prefix: str) -> Path | None:
    """Return the file with the records of the ids with this prefix, or None if there is none."""
    paths = sorted({RESULTS / name for name in env_tables.PAGES.values()})
    return next((path for path in paths if any(id.startswith(prefix) for id in env_tables.read(path))), None)


def changed(id: str) -> bool:
    """Return whether the recorded floors of an id are from other prompts or rewards."""
    known = floors.read(SOURCE).get(id)
    with gem_core.make(id) as env:
        return known is not None and known["fingerprint"] != fingerprint(env)


def write_records(pattern: str, file: Path | None, episodes: int | None, seeds: int | None) -> list[Path]:
    """Measure the ids that match `pattern`, and return the files that have their results.

    Args:
        pattern: Id, or a pattern of ids with one prefix.
        file: File for the players' returns; None takes the file with the records of this prefix.
        episodes: Number of episodes per player; None takes that of the other ids of this prefix.
        seeds: Number of episodes per player that solves nothing; None as for `episodes`.

    Raises:
        SystemExit: No id matches, the file is not known, or no page has a table for the ids; the message says
            what to do.
    """
    ids, prefix = gem_core.list_envs(pattern), pattern.partition(":")[0] + ":"
    if not ids:
        raise SystemExit(
            f"no id matches {pattern!r}: register it first, then run `gem-core envs {pattern!r}`"
        )
    file = file or file_of(prefix)
    if file is None:
        raise SystemExit(
            f"no file of docs/results has records of {prefix!r}: choose one with --file, and name it and its "
            "page in PAGES of tools/env_tables.py"
        )
    known = [r["episodes"] for id, r in env_tables.read(file).items() if id.startswith(prefix)]
    env_tables.measure(pattern, file, episodes or max(known, default=env_tables.EPISODES))
    known = [r["seeds"] for id, r in floors.read(SOURCE).items() if id.startswith(prefix)]
    for id in ids:
        floors.measure(id, SOURCE, seeds or max(known, default=floors.SEEDS), 1, changed(id))
    floors.write(SOURCE, FLOORS)
    pages = [PAGES / page for page, records in env_tables.PAGES.items() if records == file.name]
    shown = set()
    for page in pages:
        text = env_tables.fill(page.read_text(), env_tables.read(file))
        page.write_text(text)
        shown |= {id for id in ids if f"| `{id}` |" in text}
    if missing := sorted(set(ids) - shown):
        names = ", ".join(f"docs/environments/{page.name}" for page in pages)
        raise SystemExit(
            f"no table shows {', '.join(missing)}: write the two lines `<!-- table: {pattern} -->` and "
            f"`<!-- end -->` in {names or 'a page of docs/environments'}, and run this command again"
        )
    return [file, SOURCE, FLOORS, *pages]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("pattern", help="id, or a pattern of ids such as 'game:NewGame-v0*'")
    parser.add_argument("--file", help="name of a file in docs/results, for a prefix without records")
    parser.add_argument("--episodes", type=int, help="episodes per player")
    parser.add_argument("--seeds", type=int, help="episodes per player that solves nothing")
    args = parser.parse_args()
    if not args.pattern:
        parser.error("no id is given: `make records ID=game:NewGame-v0`")
    written = write_records(args.pattern, args.file and RESULTS / args.file, args.episodes, args.seeds)
    sys.stdout.write("\n".join(["written:", *(str(path.relative_to(ROOT)) for path in written)]) + "\n")


if __name__ == "__main__":
    main()
