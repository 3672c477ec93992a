"""`gem-core export`: write task rows for a trainer."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gem_core.errors import ConfigError
from gem_lab._cli import _console
from gem_lab._cli._arguments import ENV_CHOICE, LIST, CliCommand, build_env, positive_int, seed

if TYPE_CHECKING:
    from gem_core._core import Split
    from gem_core.tasks import EnvChoice


COMMAND = CliCommand(
    "write task rows for a trainer",
    examples=[
        "--to tasks --env game:GuessTheNumber-v0-easy --num 1000 --out train.jsonl",
        "--to tasks --env math:Arithmetic-v0 --out epoch.jsonl",
        "--to tasks --env 'game:GuessTheNumber-v0(max_number=50)=2' --env game:Mastermind-v0 "
        "--num 200 --split eval --out eval.jsonl",
    ],
    details=(
        "A row is {env_id, env_kwargs, seed, index, item}; all samples of a group share it. Training "
        "rows and evaluation rows share no seed and no item of a dataset. Training rows go through the "
        "items in repeated shuffled passes; evaluation rows name each item at most once."
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--to",
        required=True,
        metavar="FORMAT",
        help="'tasks' for JSON Lines, or a trainer that `gem-core doctor` lists, for its own format",
    )
    parser.add_argument(
        "--env",
        **LIST,
        required=True,
        metavar=ENV_CHOICE,
        help="environment, or several for a mix",
    )
    parser.add_argument(
        "--num",
        type=positive_int,
        metavar="N",
        help="number of tasks (default for datasets: every item once)",
    )
    parser.add_argument("--seed", type=seed, default=0, metavar="S", help="seed of the rows (default 0)")
    parser.add_argument(
        "--group-size", type=positive_int, default=1, metavar="N", help="samples per task (default 1)"
    )
    parser.add_argument(
        "--split", choices=("train", "eval"), default="train", help="purpose of the rows (default train)"
    )
    parser.add_argument("--out", required=True, metavar="FILE", help="file to write")


def run(args: argparse.Namespace) -> int:
    """Write the rows, after building every environment once to report wrong arguments early."""
    from gem_core.tasks import EnvChoice, TaskRow, make_tasks, write_tasks
    from gem_lab._discovery import check_trainer_names, load_part

    check_trainer_names([args.to], "tasks")
    if args.to == "tasks" and Path(args.out).suffix in (".parquet", ".csv", ".arrow"):
        raise ConfigError(f"--out {args.out}: the format of tasks is JSON Lines; end the name with .jsonl")
    write = write_tasks if args.to == "tasks" else load_part(args.to, "exporter")
    sources = [EnvChoice.parse(text) for text in args.env]
    for source in sources:
        build_env(source.env_id, source.env_kwargs).close()
    split: Split = args.split
    num_tasks = args.num or _each_item_once(sources, split)
    tasks = make_tasks(sources, num_tasks, seed=args.seed, group_size=args.group_size, split=split)
    rows: list[TaskRow] = []
    with _console.progress("making rows", num_tasks * args.group_size) as advance:
        for row in tasks:
            rows.append(row)
            advance(len(rows))
    write(rows, args.out)
    fewer = len(rows) < num_tasks * args.group_size
    _console.note(
        f"wrote {len(rows)} rows to {args.out}{'; there are no more evaluation items' if fewer else ''}"
    )
    return 0


def _each_item_once(sources: Sequence[EnvChoice], split: Split) -> int:
    """Return the number of tasks that play every item of the sources once."""
    from gem_core._tasks import count_items, tasks_per_epoch

    counts = {source.label: count_items(source, split) for source in sources}
    endless = [label for label, count in counts.items() if count is None]
    if endless:
        raise ConfigError(f"set --num: {endless[0]} has no items, so every seed gives a task")
    if split == "train":
        return tasks_per_epoch(sources) or 0
    return sum(count for count in counts.values() if count)
