"""`gem-core report`: compare evaluations on a web page, or in logs for Inspect's viewer."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gem_core._util.messages import error_line, error_text
from gem_core.errors import ConfigError, GemError
from gem_lab._cli import _console
from gem_lab._cli._arguments import CliCommand, add_json_flag
from gem_lab._pages.document import check_page

if TYPE_CHECKING:
    from gem_lab.eval._report import EvalRun

COMMAND = CliCommand(
    "compare evaluations on a web page",
    examples=[
        "runs/random runs/oracle --out report.html",
        "runs/mini --inspect logs",
        "runs/mini --atif trajectories",
    ],
    details=(
        "The page works without a network or a server. Each further run is compared with the first, task "
        "by task. --inspect also writes a log for each run and environment, which `inspect view` opens; "
        "--atif writes a trajectory for each episode, in the format of Harbor."
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folder written by `gem-core eval`")
    parser.add_argument("--out", metavar="FILE", help="page to write (default report.html)")
    parser.add_argument("--inspect", metavar="DIR", help="folder for logs in the format of Inspect")
    parser.add_argument("--atif", metavar="DIR", help="folder for trajectories in ATIF")
    add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Write the page, and the logs if --inspect names a folder."""
    from gem_lab.eval._atif import write_trajectories
    from gem_lab.eval._inspect_log import slug, write_inspect_logs
    from gem_lab.eval._report import (
        DIFFERENCE_COLUMNS,
        EvalRun,
        difference_rows,
        differences_of,
        named_apart,
        write_report,
    )

    out = args.out or "report.html"
    if not args.out:
        check_page(out)
    with _console.progress("reading", len(args.runs)) as advance:
        read = [_read(folder) for folder in _console.counted(args.runs, advance)]
    damaged = [error for error in read if isinstance(error, GemError)]
    if len(damaged) == len(read):
        raise damaged[0]
    runs = named_apart([run for run in read if isinstance(run, EvalRun)])
    for error in damaged:
        _console.note(f"left out: {error_text(error)}")
    with _console.progress("comparing", None):
        differences = differences_of(runs)
    with _console.progress("writing", sum(len(run.episodes) for run in runs)) as advance:
        page = write_report(runs, out, differences=differences, advance=advance)
    logs: list[Path] = []
    if args.inspect:
        logs = [path for run in runs for path in write_inspect_logs(run, args.inspect)]
    trajectories: list[Path] = []
    if args.atif:
        trajectories = [
            path
            for run in runs
            for path in write_trajectories(
                run.episodes, Path(args.atif) / slug(run.name), system_prompt=run.config.get("system_prompt")
            )
        ]
    if args.json:
        _console.print_json(
            {
                "page": out,
                "episodes": page.episodes,
                "logs": [str(log) for log in logs],
                "trajectories": len(trajectories),
                "differences": differences,
                "left_out": list(map(error_text, damaged)),
            }
        )
        return int(bool(damaged))
    if rows := difference_rows(differences):
        _console.print_table(
            DIFFERENCE_COLUMNS, rows, title=f"Differences from {runs[0].name}, paired by task"
        )
    _console.note(f"wrote {page.episodes} episodes of {len(runs)} runs to {out}; open it in a browser")
    if logs:
        _console.note(f"wrote {len(logs)} logs to {args.inspect}; `inspect view --log-dir {args.inspect}`")
    if trajectories:
        _console.note(f"wrote {len(trajectories)} trajectories to {args.atif}")
    return int(bool(damaged))


def _read(folder: str) -> EvalRun | GemError:
    """Return a run, or why it cannot be shown."""
    from gem_lab.eval._report import read_run

    try:
        return read_run(folder)
    except GemError as error:
        return error
    except Exception as error:  # whatever the files hold
        return ConfigError(f"{folder} is damaged: {error_line(error)}")
