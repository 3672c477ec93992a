"""`gem-core conform`: grade the advantage estimators of gem-core and of a trainer on exact batches."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout

from gem_lab._cli import _console
from gem_lab._cli._arguments import CliCommand, add_json_flag

COMMAND = CliCommand(
    "grade advantage estimators on batches with exact answers",
    examples=["", "--trainer NAME --json"],
    details=(
        "The batches have episodes of one row and of many, such as rewritten histories and sub-agents. "
        "With --trainer, the own estimators of the trainer and those of its plugin are graded, too. The "
        "exit code is 1 if an estimator of gem-core is wrong."
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--trainer", metavar="NAME", help="also grade this trainer, which must be installed")
    parser.add_argument(
        "--batches", action="store_true", help="print the batches and their answers as JSON, without grades"
    )
    add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Print the grades, or the batches."""
    from gem_lab._conform import grade_estimators
    from gem_lab._conform._grade import own_estimators
    from gem_lab._conform._rows import read_batches
    from gem_lab._discovery import load_part

    if args.batches:
        _console.print_json(read_batches())
        return 0

    estimators = own_estimators()
    with redirect_stdout(sys.stderr):  # trainers log to what is the standard output when they are imported
        if args.trainer:
            estimators |= load_part(args.trainer, "conform")()
        grades = grade_estimators(estimators)
    if args.json:
        _console.print_json(grades)
    else:
        columns = ["estimator", "right", "wrong", "refused"]
        _console.print_table(columns, [[name, *_summary(found)] for name, found in grades.items()])
    ours = [grades[name] for name, estimator in estimators.items() if estimator.ours]
    return int(any(found == "wrong" for by_batch in ours for found in by_batch.values()))


def _summary(grades: Mapping[str, str]) -> list[str]:
    """Return on how many batches an estimator is right, and the names of the others."""
    wrong, refused = (
        ", ".join(batch for batch, grade in grades.items() if grade == other)
        for other in ("wrong", "refused")
    )
    return [f"{[*grades.values()].count('right')} of {len(grades)}", wrong, refused]
