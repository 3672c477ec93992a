"""`gem-core consistency`: whether every trainer computes what gem_core computes."""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from gem_core.cli import _console
from gem_core.cli._arguments import add_json_flag, command_parser
from gem_core.errors import ConfigError

if TYPE_CHECKING:
    from gem_core.consistency import Comparison, Record

TRAINERS = {"verl": "verl", "openrlhf": "openrlhf", "oat": "oat", "rl2": "RL2", "roll": "roll"}
"""Name to import package."""
RECORDS, RUNS = "runs/consistency/records", "docs/results/learning/runs.jsonl"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = command_parser(
        commands,
        "consistency",
        "say whether every trainer computes what gem_core computes",
        examples=[
            "",
            "--trainers verl,oat --level 2",
            "--run --html consistency.html",
            "--level 4 --html learning.html",
        ],
        details=(
            "All trainers take one step on the same tasks, the same answers of the model and the same\n"
            "weights, and leave a record of what their loss consumed. `nox -s verl` and its like make these\n"
            "records; --run makes those of the trainers in this Python environment, in a checkout of\n"
            "gem-core. Exit code 1 when a trainer differs, or one named by --trainers lacks a record.\n\n"
            "Level 4 compares whole learning runs over seeds: success after training, minus that of the\n"
            "reference trainer. Its runs take minutes each and are made by --level 4 --run alone.\n"
        ),
    )
    parser.add_argument(
        "folder",
        nargs="?",
        metavar="PATH",
        help=f"folder of records (default {RECORDS}); for level 4, file of runs (default {RUNS})",
    )
    parser.add_argument("--trainers", metavar="NAMES", help="these only, with commas between (default: all)")
    parser.add_argument("--level", type=int, choices=(1, 2, 3, 4), help="this level only (default: 1 to 3)")
    parser.add_argument(
        "--run", action="store_true", dest="make", help="make the records of the trainers that are here"
    )
    parser.add_argument("--html", metavar="FILE", help="write a page with every difference")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    from gem_core.consistency import compare, read_records
    from gem_core.consistency.compare import LEVELS, Comparison

    names = args.trainers.split(",") if args.trainers else list(TRAINERS)
    for name in names:
        if name not in TRAINERS:
            raise ConfigError(f"--trainers: {name!r} is none of {', '.join(TRAINERS)}")
    if args.level == 4:
        return run_learning(args, names)
    if args.make:
        make_records(names)
    folder = args.folder or RECORDS
    records = read_records(folder)
    if not records:
        raise ConfigError(f"{folder} has no records; `nox -s verl` in a checkout of gem-core makes one")
    comparisons: dict[str, Comparison] = {}
    for name in names:
        record = records.get(name)
        if record is None:
            comparisons[name] = Comparison(name, {})
            continue
        if record.reference not in records:
            raise ConfigError(f"{folder} has no record {record.reference!r} to compare {name} with")
        found = compare(records[record.reference], record)
        wanted = {n: level for n, level in found.levels.items() if args.level in (None, n)}
        comparisons[name] = Comparison(name, wanted)
    if args.html:
        from gem_core.consistency.page import write_page

        write_page(records, comparisons, args.html)
    if args.json:
        _console.print_json({name: asdict(found) for name, found in comparisons.items()})
    else:
        levels = [n for n in LEVELS if args.level in (None, n)]
        _print(records, comparisons, [f"{n} {LEVELS[n]}" for n in levels], levels)
    missing = [name for name in names if args.trainers and name not in records]
    wrong = [name for name, found in comparisons.items() if found.levels and not found.equal]
    return int(bool(wrong or missing))


def run_learning(args: argparse.Namespace, names: Sequence[str]) -> int:
    """Level 4: print the table of learning runs."""
    from gem_core.consistency import compare_learning, read_runs
    from gem_core.consistency.learning import REBN, REFERENCE
    from gem_core.consistency.learning_page import series_name, write_learning_page

    folder = args.folder or RUNS
    if args.make:
        for name in [REFERENCE, *installed(names)]:
            options = ["-m", "tests.trainers.learning", "--trainer", name, "--out", folder]
            in_checkout(name, Path("tests/trainers") / name / "learn.py", options)
    every = read_runs(folder)
    runs = [run for run in every if run.trainer in (REFERENCE, *names)]
    if not runs:
        raise ConfigError(f"{folder} has no learning runs; --run in a checkout of gem-core makes them")
    found = compare_learning(runs)
    if args.html:
        write_learning_page(runs, found, args.html)
    tasks = list(dict.fromkeys(run.task for run in runs))
    if args.json:
        _console.print_json([{**asdict(each), "equal": each.equal} for each in found])
    else:
        table: dict[str, dict[str, str]] = {}
        for each in found:
            table.setdefault(series_name(each.trainer, each.variant), {})[each.task] = each.verdict
        rows = [[name, *(row.get(task, "not run") for task in tasks)] for name, row in table.items()]
        title = "Success after training, minus that of the reference trainer (90% interval)"
        _console.print_table(["trainer", *tasks], rows, title=title)
    mine = [each for each in found if each.variant == REBN]
    wanted = {(name, run.task) for name in names for run in every if run.trainer != REFERENCE}
    missing = args.trainers and wanted - {(each.trainer, each.task) for each in mine}
    return int(bool(missing) or not mine or not all(each.equal for each in mine))


def make_records(names: Sequence[str]) -> None:
    """Run the step in each trainer that this Python environment has.

    Raises:
        ConfigError: This is no checkout, none of them is installed, or the step failed.
    """
    here = installed(names)
    if not here:
        raise ConfigError(f"none of {', '.join(names)} is installed in this Python environment")
    for name in here:
        test = Path("tests/trainers") / name / "test_consistency.py"
        in_checkout(name, test, ["-m", "pytest", "-q", "-W", "ignore::DeprecationWarning", str(test)])


def installed(names: Sequence[str]) -> list[str]:
    """Those of the trainers that this Python environment has."""
    return [name for name in names if importlib.util.find_spec(TRAINERS[name])]


def in_checkout(trainer: str, needed: Path, options: Sequence[str]) -> None:
    """Run Python for a trainer.

    Raises:
        ConfigError: The file that it needs is not here, or it failed.
    """
    if not needed.exists():
        raise ConfigError(f"{needed} is not here; --run works in a checkout of gem-core only")
    _console.note(f"{trainer} runs")
    environment = {**os.environ, f"GEM_CORE_{trainer.upper()}": "1"}
    if subprocess.run([sys.executable, *options], env=environment, check=False).returncode:
        raise ConfigError(f"{trainer} failed; see above")


def _print(
    records: Mapping[str, Record],
    comparisons: Mapping[str, Comparison],
    columns: Sequence[str],
    levels: Sequence[int],
) -> None:
    rows = []
    for name, found in comparisons.items():
        record = records.get(name)
        version = next(iter(record.versions.values())) if record else ""
        verdicts = [found.levels[n].verdict if n in found.levels else "not run" for n in levels]
        rows.append([name, version, *verdicts])
    _console.print_table(["trainer", "version", *columns], rows, title="The same step in every trainer")
    for name, found in comparisons.items():
        for number, level in found.levels.items():
            for line in level.differences[:5]:
                print(f"{name}, level {number}: {line}")
            for what, why in level.not_carried.items():
                print(f"{name}, level {number}: {what} is not compared: {why}")
