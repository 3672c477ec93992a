"""`gem-core export`: task rows for a trainer."""

from __future__ import annotations

import argparse
import importlib
import types

from gem_core.cli import _console
from gem_core.cli._arguments import build_env, command_parser, positive_int, seed
from gem_core.errors import ConfigError

TRAINERS = ("verl", "openrlhf", "oat", "rl2", "roll")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = command_parser(
        commands,
        "export",
        "write task rows for a trainer",
        examples=[
            "--to tasks --env game:GuessTheNumber-v0-easy --num 1000 --out train.jsonl",
            "--to tasks --env 'game:GuessTheNumber-v0(max_number=50)=2' --env game:Mastermind-v0 "
            "--num 200 --held-out --out eval.jsonl",
        ],
        details=(
            "A row is {env_id, env_kwargs, seed, index}; all samples of a group share seed and index.\n"
            "Train seeds and held-out seeds never overlap."
        ),
    )
    parser.add_argument(
        "--to",
        required=True,
        choices=("tasks", *TRAINERS),
        help="tasks: JSON Lines; a trainer: that trainer's own format",
    )
    parser.add_argument(
        "--env",
        action="append",
        required=True,
        metavar="ID[(KEY=VALUE)][=WEIGHT]",
        help="environment; repeat for a mix",
    )
    parser.add_argument("--num", type=positive_int, required=True, metavar="N", help="number of tasks")
    parser.add_argument("--seed", type=seed, default=0, metavar="S", help="seed of the rows (default 0)")
    parser.add_argument(
        "--group-size", type=positive_int, default=1, metavar="N", help="samples of each task (default 1)"
    )
    parser.add_argument("--held-out", action="store_true", help="draw from the seeds kept for evaluation")
    parser.add_argument("--out", required=True, metavar="FILE", help="file to write; appears at once")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the rows; every environment is built once first, so that a bad argument shows now."""
    from gem_core.tasks import TaskSource, make_tasks, write_tasks

    write = write_tasks if args.to == "tasks" else _exporter(args.to).write
    sources = [TaskSource.parse(text) for text in args.env]
    for source in sources:
        build_env(source.env_id, source.env_kwargs).close()
    rows = make_tasks(
        sources,
        args.num,
        seed=args.seed,
        group_size=args.group_size,
        split="held_out" if args.held_out else "train",
    )
    write(rows, args.out)
    _console.note(f"wrote {args.num * args.group_size} rows to {args.out}")
    return 0


def _exporter(trainer: str) -> types.ModuleType:
    name = f"gem_{trainer}.export"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in (name, f"gem_{trainer}"):
            raise
        raise ConfigError(
            f"gem_{trainer} has no exporter in this version of gem-core; "
            "`--to tasks` writes the same rows as JSON Lines"
        ) from None
