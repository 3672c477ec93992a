"""Print how many wrong mutants of the reference solutions the tasks of a family pay.

python -m tests.mutants programs --items 400
python -m tests.mutants databases --items 2
python -m tests.mutants terminal --items 1
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path

Counts = Counter[str]


def programs(items: int) -> tuple[Counts, Counts]:
    """Return the numbers of refused and of paid mutants by the text of the task without its numbers."""
    from gem_envs._generated.programs import ProgramRows
    from tests.mutants.programs import judged

    rows = ProgramRows(False, 4, "train", 100_000, 0)
    refused, paid = Counter[str](), Counter[str]()
    for index in range(items):
        row = rows[index]
        text = row["problem"].translate({ord(digit): None for digit in "0123456789"})
        good, bad = judged(row)
        refused[text] += len(good)
        paid[text] += len(bad)
    return refused, paid


def databases(items: int) -> tuple[Counts, Counts]:
    """Return the numbers by task, for seeds from 0; changes that never change the result are left out."""
    from gem_envs._databases.task import TASKS
    from tests.mutants.databases import judged

    source, refused, paid = TASKS.choose(), Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        for index, name in enumerate(source.names):
            for seed in range(items):
                verdicts = judged(name, source.task(index, seed), Path(folder))
                paid[name] += sum(verdicts.values())
                refused[name] += len(verdicts) - sum(verdicts.values())
    return refused, paid


def terminal(items: int) -> tuple[Counts, Counts]:
    """Return the numbers by task with hidden input, for seeds from 0."""
    from gem_envs._terminal.source import OwnTasks
    from tests.mutants.terminal import HIDDEN, judged

    source, refused, paid = OwnTasks(HIDDEN), Counter[str](), Counter[str]()
    for index, name in enumerate(source.names):
        for seed in range(items):
            verdicts = judged(name, source, source.task(index, seed))
            paid[name] += sum(verdicts.values())
            refused[name] += len(verdicts) - sum(verdicts.values())
    return refused, paid


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    families = {"programs": programs, "databases": databases, "terminal": terminal}
    parser.add_argument("family", choices=families)
    parser.add_argument("--items", type=int, default=1, help="items in all, or seeds of each task")
    args = parser.parse_args()
    refused, paid = families[args.family](args.items)
    print(f"{args.family}: {paid.total()} of {(refused + paid).total()} wrong mutants are paid")
    for name, number in paid.most_common():
        if number:
            print(f"  {number} of {number + refused[name]}: {name}")


main()
