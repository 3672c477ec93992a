"""`gem-core consistency`: check that every trainer computes the same as gem_core."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from gem_core.errors import ConfigError, UnsupportedTrainer
from gem_lab._cli import _console
from gem_lab._cli._arguments import LIST, CliCommand, add_json_flag, listed

if TYPE_CHECKING:
    from gem_core.trainers._plugin import Recorder
    from gem_lab.consistency import Record
    from gem_lab.consistency._compare import Comparison

STEPS, RUNS = "runs/consistency/records", "runs/consistency/learning.jsonl"


COMMAND = CliCommand(
    "compare what every trainer computes with gem_core",
    examples=[
        "",
        "--records records --trainers acme --level 2",
        "--run --html consistency.html",
        "--level 4 --records runs.jsonl --html learning.html",
    ],
    details=(
        "All trainers take one step with the same tasks, the same model responses, and the same weights, "
        "and record what their loss consumes. --run creates the records of the trainers in this Python "
        "environment whose plugins have a recorder. Exit code 1 if a trainer differs, or if --trainers "
        "names one that has no record.\n\n"
        "Level 4 compares whole learning runs over seeds by the difference in success after training "
        "from the reference trainer: equivalent if the 90% interval lies within 20% of the reference "
        "trainer's gain, differs if it lies outside, otherwise undecided. Exit code 1 unless all trainers "
        "are equivalent on all tasks. A run takes minutes; only --level 4 --run starts any."
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--records",
        metavar="PATH",
        help=f"folder of records (default {STEPS}); for level 4, JSON Lines file of runs (default {RUNS})",
    )
    parser.add_argument("--trainers", **LIST, type=listed(), metavar="NAME", help="names (default: all)")
    parser.add_argument("--level", type=int, choices=(1, 2, 3, 4), help="only this level (default: 1 to 3)")
    parser.add_argument(
        "--run", action="store_true", dest="record", help="record the installed trainers first"
    )
    parser.add_argument("--html", metavar="FILE", help="also write a page with every difference")
    add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    from gem_lab._discovery import trainer_names

    learning = args.level == 4
    path = Path(args.records or (RUNS if learning else STEPS))
    if args.record:
        names = args.trainers or trainer_names()
        recorders = _find_recorders(names, learning, required=bool(args.trainers))
        with _console.progress("recording", len(recorders)) as advance:
            for index, (name, recorder) in enumerate(recorders.items()):
                _console.note(f"recording {name} ({index + 1} of {len(recorders)})")
                recorder(path)
                advance(index + 1)
    return _compare_runs(path, args) if learning else _compare_steps(path, args)


def _compare_steps(path: Path, args: argparse.Namespace) -> int:
    from gem_lab.consistency import compare
    from gem_lab.consistency._compare import LEVELS, Comparison
    from gem_lab.consistency._record import read_records

    records = read_records(path)
    if not records:
        raise ConfigError(
            f"{path} holds no records; --run creates them with the plugins that have a recorder"
        )
    names = _names(args, [name for name, record in records.items() if not record.is_reference])
    comparisons: dict[str, Comparison] = {}
    for name in names:
        record = records.get(name)
        if record is None:
            comparisons[name] = Comparison(name, {})
            continue
        if record.reference not in records:
            raise ConfigError(
                f"{path} has no record {record.reference!r} to compare {name} with; record it first, "
                "or name another "
                "folder with --records"
            )
        levels = compare(records[record.reference], record).levels
        comparisons[name] = Comparison(
            name, {number: level for number, level in levels.items() if args.level in (None, number)}
        )
    if args.html:
        from gem_lab.consistency._page import write_page

        write_page(records, comparisons, args.html)
    if args.json:
        _console.print_json({name: asdict(comparison) for name, comparison in comparisons.items()})
    else:
        numbers = [number for number in LEVELS if args.level in (None, number)]
        _print_steps(records, comparisons, {number: LEVELS[number] for number in numbers})
    missing = [name for name in names if args.trainers and name not in records]
    wrong = [name for name, comparison in comparisons.items() if comparison.levels and not comparison.equal]
    return int(bool(wrong or missing))


def _print_steps(
    records: Mapping[str, Record], comparisons: Mapping[str, Comparison], levels: Mapping[int, str]
) -> None:
    rows = []
    for name, comparison in comparisons.items():
        record = records.get(name)
        version = next(iter(record.versions.values())) if record else ""
        verdicts = [
            comparison.levels[number].verdict if number in comparison.levels else "not run"
            for number in levels
        ]
        rows.append([name, version, *verdicts])
    columns = ["trainer", "version", *(f"{number} {level}" for number, level in levels.items())]
    _console.print_table(columns, rows, title="The same step in every trainer")
    for name, comparison in comparisons.items():
        for number, level in comparison.levels.items():
            for line in level.differences[:5]:
                _console.print_text(f"{name}, level {number}: {line}")
            for field, reason in level.not_carried.items():
                _console.print_text(f"{name}, level {number}: {field} is not compared: {reason}")


def _compare_runs(path: Path, args: argparse.Namespace) -> int:
    """Compare learning runs (level 4)."""
    from gem_lab.consistency._learning import REBN, REFERENCE, compare_learning, read_runs
    from gem_lab.consistency._learning_page import series_name, write_learning_page

    recorded = read_runs(path)
    names = _names(args, [run.trainer for run in recorded if run.trainer != REFERENCE])
    runs = [run for run in recorded if run.trainer in (REFERENCE, *names)]
    if not runs:
        raise ConfigError(
            f"{path} holds no learning runs; --run creates them with the plugins that have a recorder"
        )
    results = compare_learning(runs)
    if args.html:
        write_learning_page(runs, results, args.html)
    tasks = list(dict.fromkeys(run.task for run in runs))
    if args.json:
        _console.print_json(
            [{**asdict(result), "equal": result.equal, "verdict": result.verdict} for result in results]
        )
    else:
        table: dict[str, dict[str, str]] = {}
        for result in results:
            table.setdefault(series_name(result.trainer, result.variant), {})[result.task] = result.verdict
        rows = [[name, *(row.get(task, "not run") for task in tasks)] for name, row in table.items()]
        title = "Difference in success after training from the reference trainer (90% interval)"
        _console.print_table(["trainer", *tasks], rows, title=title)
    compared = [result for result in results if result.variant == REBN]
    required = {(name, run.task) for name in names for run in recorded if run.trainer != REFERENCE}
    missing = args.trainers and required - {(result.trainer, result.task) for result in compared}
    return int(bool(missing) or not compared or not all(result.equal for result in compared))


def _names(args: argparse.Namespace, recorded: Sequence[str]) -> list[str]:
    """Return the trainers to compare: the requested ones, or all with a plugin or a record.

    Raises:
        UnknownName: A requested trainer has neither a plugin nor a record.
    """
    from gem_lab._discovery import check_trainer_names, trainer_names

    if not args.trainers:
        return sorted({*trainer_names(), *recorded})
    names: list[str] = args.trainers
    check_trainer_names([name for name in names if name not in recorded])
    return names


def _find_recorders(names: Sequence[str], learning: bool, *, required: bool) -> dict[str, Recorder]:
    """Return the recorders of the installed trainers.

    Args:
        names: Names of the trainers.
        learning: Whether to record learning runs instead of one step.
        required: Whether every trainer must have a recorder.

    Raises:
        ConfigError: A required recorder is missing, or no trainer has a recorder.
        UnknownName: A trainer has no plugin.
    """
    from gem_lab._discovery import load_part, load_trainer

    recorders: dict[str, Recorder] = {}
    reasons = []
    for name in names:
        try:
            load_trainer(name).supported.require()
            recorders[name] = load_part(name, "learning_recorder" if learning else "step_recorder")
        except (ConfigError, UnsupportedTrainer) as error:
            if required:
                raise
            reasons.append(str(error))
    if not recorders:
        raise ConfigError(f"nothing to record here: {'; '.join(reasons) or 'no trainer has a plugin'}")
    return recorders
