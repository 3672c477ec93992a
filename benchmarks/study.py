"""Learning studies: run the arms of a study, tune them, and draw the results.

    python benchmarks/study.py --list
    python benchmarks/study.py penalty             # run all of it; continues after an interruption
    python benchmarks/study.py penalty --minutes 9 # start no run after nine minutes
    python benchmarks/study.py penalty --toy       # a few seconds, shows only that it runs
    python benchmarks/study.py penalty --run ID    # repeat one run and compare it with its record

The studies are the files in ``benchmarks/studies/catalog``. Runs, models, and raw records are in
``runs/studies/<name>``. ``docs/results/<name>`` gets ``runs.jsonl.gz`` with one `Record` per line, and
``summary.md`` and ``curves.png``, which are drawn from it. ``--draw`` only draws the recorded runs.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path

from records import ROOT, RUNS, Record, read_records, write_records
from studies import Study, list_studies, load_study
from studies.page import draw, unfinished
from studies.runner import Run, Runner

from gem_core._util.checks import check_names


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("study", nargs="?", choices=list_studies())
    parser.add_argument("--list", action="store_true", help="list the studies")
    parser.add_argument("--folder", type=Path, help="folder of the runs (default runs/studies/<study>)")
    parser.add_argument("--out", type=Path, help="folder of the results (default docs/results/<study>)")
    parser.add_argument("--jobs", type=int, default=_cores(), help="runs at a time; 0 for this process only")
    parser.add_argument("--seeds", type=int, help="number of evaluation seeds (default: all of the study)")
    parser.add_argument("--arms", nargs="+", metavar="ARM", help="only these arms")
    parser.add_argument("--tasks", nargs="+", metavar="TASK", help="only these tasks")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="do not start a run after this time"
    )
    parser.add_argument("--continue", action="store_true", dest="known", help="skip runs that are recorded")
    parser.add_argument("--device", help="'cpu' (the default) or 'cuda'")
    parser.add_argument("--toy", action="store_true", help="a toy size, in runs/toy")
    parser.add_argument("--run", metavar="ID", help="repeat one recorded run and compare its results")
    parser.add_argument("--draw", action="store_true", help="only draw the recorded runs")
    arguments = parser.parse_args(argv)
    if arguments.list or not arguments.study:
        for name in list_studies():
            print(f"{name:16} {load_study(name).title}")
        return 0
    try:
        return _run(arguments)
    except BrokenProcessPool:
        print(
            "A process of the study was killed, probably because memory ran out. The complete runs are kept; "
            "repeat the command, with fewer --jobs, to continue.",
            file=sys.stderr,
        )
        return 1


def _run(arguments: argparse.Namespace) -> int:
    name = arguments.study
    study = _selected(load_study(name), arguments)
    folder = arguments.folder or ROOT / "runs" / ("toy" if arguments.toy else "studies") / name
    out = arguments.out or (folder / "results" if arguments.toy else ROOT / "docs" / "results" / name)
    path = out / RUNS
    recorded = read_records(path) if path.exists() else []
    if arguments.run:
        return _repeat(name, study, folder, recorded, arguments.run, arguments.jobs)
    if arguments.draw:
        draw(name, study, recorded, out)
        return 0
    runner = Runner(
        name,
        study,
        folder,
        jobs=arguments.jobs,
        deadline=time.monotonic() + 60 * arguments.minutes,
        known=recorded if arguments.known else (),
    )
    complete = runner.run()
    records = runner.records()
    if any(record.phase == "evaluation" for record in records):
        out.mkdir(parents=True, exist_ok=True)
        write_records(path, records)
        draw(name, study, read_records(path), out)
        print((out / "summary.md").read_text(encoding="utf-8"))
    if not complete:
        counts = unfinished(study, records)
        print(f"not complete; repeat the command to continue (finished runs on evaluation seeds: {counts})")
    return 0


def _selected(study: Study, arguments: argparse.Namespace) -> Study:
    """Return the study with the changes of the command line."""
    if arguments.toy:
        study = study.toy()
    if arguments.seeds:
        study = replace(study, seeds=study.seeds[: arguments.seeds])
    check_names(arguments.tasks or (), study.tasks, kind="task")
    check_names(arguments.arms or (), study.arms, kind="arm")
    if arguments.tasks:
        study = replace(study, tasks={task: study.tasks[task] for task in arguments.tasks})
    if arguments.arms:
        arms = {arm: study.arms[arm] for arm in arguments.arms}
        tuned_like = {arm: like for arm, like in study.tuned_like.items() if arm in arms}
        baseline = study.baseline if study.baseline in arms else ""
        pairs = [pair for pair in study.pairs if {*pair} <= {*arms}]
        study = replace(study, arms=arms, tuned_like=tuned_like, baseline=baseline, pairs=pairs)
    if arguments.device:
        study = replace(study, overrides={**study.overrides, "device": arguments.device})
    return study


def _repeat(name: str, study: Study, folder: Path, recorded: list[Record], id: str, jobs: int) -> int:
    """Repeat a recorded run in a separate folder; return 0 if its results are the same."""
    check_names([id], [record.run for record in recorded], kind="recorded run")
    (record,) = [record for record in recorded if record.run == id]
    point = {option: record.config[option] for option in study.grid}
    run = Run(record.task, record.name, record.phase, record.seed, point)
    new = Runner(name, study, folder / "repeated", jobs=min(1, jobs)).execute(run)
    results = [(one.before, one.after, one.rounded().steps) for one in (record, new)]
    same = results[0] == results[1]
    print(f"{id}: {'the same results as' if same else 'results that differ from those'} recorded")
    for when, one in (("recorded", record), ("now", new)):
        print(f"{when:9} commit {one.commit}, {one.machine}")
        print(f"{'':9} {_ends(one)}")
    return 0 if same else 1


def _ends(record: Record) -> str:
    """Return the metrics of the last step and of the last evaluation."""
    values = {f"last step {metric}": steps[-1] for metric, steps in record.steps.items() if steps}
    values |= {f"after {metric}": value for metric, value in record.after.items()}
    return ", ".join(f"{name} {value:.6g}" for name, value in values.items() if value is not None)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if __name__ == "__main__":
    sys.exit(main())
