"""Recorded learning runs, each one line of a compressed JSON Lines file; the source of figures and tables."""

from __future__ import annotations

import gzip
import json
import os
import platform
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any

from gem_core._util.files import write_atomically
from gem_core.tasks import EnvChoice
from gem_lab._checker.fingerprint import fingerprint
from gem_lab._run_folders import read_json_lines
from gem_lab.train._report import smooth

ROOT = Path(__file__).resolve().parents[1]
RUNS = "runs.jsonl.gz"
"""Name of the file with the records of a study."""
OUTDATED = (
    "Prompts, items, or rewards have changed since these runs, which are due to be repeated. The commits in",
    f"{RUNS} reproduce the numbers on the same kind of processor.",
)
"""Note below a table with `outdated` records."""


@dataclass(frozen=True)
class Record:
    """One learning run.

    Attributes:
        name: Name of the variant or family.
        seed: Seed of the run.
        command: Command that started the run.
        commit: Short hash of the commit that ran or recorded the run.
        before: Metrics for the table, on the evaluation tasks with the initial weights.
        after: Metrics for the table, on the evaluation tasks with the final weights.
        steps: Metrics for the figure, on the training episodes, one number per step; in a file, rounded to
            four significant digits.
        machine: Processor, number of usable cores, and versions of Python and torch.
        config: All options of the run, with the names of `TrainConfig`.
        evaluation: All metrics of both evaluations: maps "before" and "after" to environments to metrics.
        fingerprints: Maps each evaluation environment to its fingerprint when the run was recorded.
        run: Name of the run within its study.
        task: Name of the task within its study.
        phase: "tuning" or "evaluation"; "" in a study without tuning runs.
        evaluations: Mean of each metric in each evaluation during the run, with its step.
        raw: Results of each evaluation seed with the final weights, by environment: "success" as a string of
            0 and 1, "return", and "turns".
        wall_s: Wall time in seconds, of the last process that worked on the run.
        cpu_s: CPU time in seconds of the same process.
        resumed: Whether an earlier process had begun the run.
    """

    name: str
    seed: int
    command: str
    commit: str
    before: dict[str, float]
    after: dict[str, float]
    steps: dict[str, list[float | None]]
    machine: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    evaluation: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    fingerprints: dict[str, str] = field(default_factory=dict)
    run: str = ""
    task: str = ""
    phase: str = ""
    evaluations: list[dict[str, float]] = field(default_factory=list)
    raw: dict[str, dict[str, Any]] = field(default_factory=dict)
    wall_s: float = 0.0
    cpu_s: float = 0.0
    resumed: bool = False

    @classmethod
    def from_run(
        cls,
        name: str,
        seed: int,
        command: str,
        folder: Path,
        *,
        table: Iterable[str],
        figure: Iterable[str],
    ) -> Record:
        """Read the folder of a finished `gem-core train`; `table` and `figure` name the metrics to keep."""
        evaluation = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
        before, after = (
            ({}, {})
            if not evaluation["after"]
            else (next(iter(evaluation[when].values())) for when in ("before", "after"))
        )
        history = read_json_lines(folder / "metrics.jsonl")
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return cls(
            name,
            seed,
            command,
            commit(),
            {metric: before[metric] for metric in table if metric in before},
            {metric: after[metric] for metric in table if metric in after},
            {metric: [step.get(metric) for step in history] for metric in figure},
            machine(),
            {option: value for option, value in config.items() if option not in ("out", "model")},
            evaluation,
            {
                env: current_fingerprint(env, config["wrappers"])
                for env in config["eval_env"] or config["env"]
            },
            **_evaluation_fields(folder / "evaluations.jsonl"),
        )

    def rounded(self) -> Record:
        """Return the record with metrics of the steps rounded to four significant digits."""
        steps = {
            metric: [value if value is None else float(f"{value:.4g}") for value in values]
            for metric, values in self.steps.items()
        }
        return replace(self, steps=steps)

    def curve(self, metric: str) -> list[float]:
        """Return a metric of the steps, averaged over five steps; NaN where a step lacks the metric."""
        return smooth([float("nan") if value is None else value for value in self.steps[metric]], 5)


@cache
def current_fingerprint(env: str, wrappers: str = "") -> str:
    """Return the fingerprint of an environment, given as for `gem-core train --env` and `--wrappers`."""
    with EnvChoice.parse(env).make(wrappers or ()) as made:
        return fingerprint(made)


def commit() -> str:
    """Return the short hash of the commit, with "+" if the code differs from it.

    On a machine without the repository's history, the environment variable ``STUDY_COMMIT`` names it.
    """
    return os.environ.get("STUDY_COMMIT") or _checked_out()


@cache
def _checked_out() -> str:
    """Return the commit of the work tree, as in `commit`."""

    def git(*command: str) -> str:
        return subprocess.check_output(["git", *command], text=True, cwd=ROOT).strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "gem_*", "benchmarks")
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")


def _evaluation_fields(path: Path) -> dict[str, Any]:
    """Return `Record.evaluations` and `Record.raw` from the evaluations of a run."""
    lines = read_json_lines(path)
    evaluations: dict[int, dict[str, list[float]]] = {}
    for line in lines:
        values = evaluations.setdefault(line["step"], {})
        for metric in ("success", "return", "turns"):
            played = [v for v, error in zip(line[metric], line["error"], strict=True) if not error]
            if played:  # an evaluation during or after training may fail as a whole
                values.setdefault(f"gem/{metric}", []).append(fmean(played))
    last = max(evaluations, default=0)
    return {
        "evaluations": [
            {"step": step, **{metric: fmean(means) for metric, means in values.items()}}
            for step, values in evaluations.items()
        ],
        "raw": {
            line["env"]: {
                "seeds": [line["seed"][0], len(line["seed"])],
                "success": "".join(str(int(value)) for value in line["success"]),
                "return": [round(value, 3) for value in line["return"]],
                "turns": line["turns"],
            }
            for line in lines
            if line["step"] == last
        },
    }


def outdated(records: Iterable[Record]) -> bool:
    """Return whether an environment has changed since one of the runs, or a run has no fingerprint."""
    return any(
        not record.fingerprints
        or any(
            current_fingerprint(env, record.config.get("wrappers", "")) != recorded
            for env, recorded in record.fingerprints.items()
        )
        for record in records
    )


def machine() -> str:
    """Return a description of this machine, with the instructions that PyTorch uses on its processor."""
    from torch.backends.cpu import get_cpu_capability as capability

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"{platform.system()} {platform.machine()}, {processor()}, {capability()}, "
        f"{cores} cores, Python {platform.python_version()}, torch {version('torch')}, "
        f"transformers {version('transformers')}"
    )


def processor() -> str:
    """Return the name of the processor."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def read_rows(path: Path) -> list[Any]:
    """Return the rows of a compressed JSON Lines file."""
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines()]


def write_rows(path: Path, rows: Iterable[Any]) -> None:
    """Write a compressed JSON Lines file; equal rows give equal files."""
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    write_atomically(path, [gzip.compress(lines.encode(), mtime=0)])


def read_records(path: Path) -> list[Record]:
    """Return the recorded runs of a file."""
    return [Record(**row) for row in read_rows(path)]


def write_records(path: Path, records: Iterable[Record]) -> None:
    """Write the runs to a file, replacing its content; metrics of the steps are rounded."""
    write_rows(path, (asdict(record.rounded()) for record in records))
