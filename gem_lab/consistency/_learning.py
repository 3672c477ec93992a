"""Comparison of whole learning runs with runs of the reference trainer, from the same initial weights.

    runs = read_runs("runs.jsonl")
    for result in compare_learning(runs):
        print(result.trainer, result.task, result.verdict)

This is level 4. Levels 1 to 3 compare numbers from one step, which are equal up to rounding. In whole runs,
each trainer samples differently, so level 4 compares the distributions of the results over seeds.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import IO, Any, Literal

from gem_core._util.foreign_json import read_json
from gem_core._util.messages import error_line
from gem_core.errors import TraceError
from gem_lab.eval._intervals import estimate_t

MARGIN = 0.2
"""Margin of equivalence, as a share of the reference trainer's mean gain in success on the task."""
COVERAGE = 0.9
LEAST_SEEDS = 5
REFERENCE, REBN = "reference", "rebn"


@dataclass(frozen=True)
class LearningRun:
    """One learning run: a line of a JSON Lines file, with these names as keys.

    Attributes:
        task: Name of the learning task.
        trainer: Name of the trainer.
        version: Name and version of the trainer.
        variant: "rebn", or the name of a fault or control.
        seed: Seed of the tasks and of the trainer.
        before: Success rate on the evaluation tasks with the initial weights, 0 to 1.
        after: Success rate on the evaluation tasks with the final weights, 0 to 1.
        model: SHA-256 of the initial weights, in hex.
        budget: Training budget, equal for all trainers.
        command: Command that started the run.
        commit: Short hash of the commit that ran or recorded the run.
        success: Success rate of the training episodes, one number per step.
    """

    task: str
    trainer: str
    version: str
    variant: str
    seed: int
    before: float
    after: float
    model: str
    budget: dict[str, Any]
    command: str
    commit: str
    success: list[float] = field(repr=False)

    @classmethod
    def from_line(cls, line: str) -> LearningRun:
        """Read one line of the file.

        Raises:
            TraceError: The line is not a learning run.
        """
        try:
            run = cls(**read_json(line))
            success = [float(value) for value in run.success]
            return replace(run, before=float(run.before), after=float(run.after), success=success)
        except (ValueError, TypeError) as error:
            raise TraceError(f"not a learning run: {error_line(error)}") from error


@dataclass
class Equivalence:
    """Comparison of a trainer's runs of one task with the reference trainer's ReBN runs.

    Attributes:
        task: Name of the learning task.
        trainer: Name of the trainer.
        variant: "rebn", or the name of a fault or control.
        runs: Runs, ordered by seed.
        margin: Margin of equivalence in success: `MARGIN` times the mean gain (``after`` minus ``before``) of
            the reference trainer's runs; 0 if they do not gain.
        interval: ``mean`` difference in ``after`` from the reference run of the same seed, and the ends
            ``low`` and ``high`` of its t interval with coverage `COVERAGE`; None if there is no interval.
        obstacles: Reasons why there is no verdict, one line each.
    """

    task: str
    trainer: str
    variant: str
    runs: list[LearningRun]
    margin: float
    interval: dict[str, float | None] = field(default_factory=dict)
    obstacles: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool | None:
        """True if the interval lies within ± `margin`, False if it lies outside.

        None if the interval contains an end of the margin, or if there are obstacles or too few seeds.
        """
        low, high = self.interval.get("low"), self.interval.get("high")
        if self.obstacles or len(self.runs) < LEAST_SEEDS or low is None or high is None:
            return None
        if low > -self.margin and high < self.margin:
            return True
        return False if low > self.margin or high < -self.margin else None

    @property
    def verdict(self) -> str:
        """Summary for a cell of a table."""
        if self.obstacles:
            return f"not comparable: {self.obstacles[0]}"
        if len(self.runs) < LEAST_SEEDS:
            return f"{len(self.runs)} of {LEAST_SEEDS} seeds"
        word = {True: "equivalent", False: "differs", None: "undecided"}[self.equal]
        mean, low, high = (self.interval[name] or 0.0 for name in ("mean", "low", "high"))
        return f"{word} ({mean:+.3f}, {low:+.3f} to {high:+.3f})"


def open_runs(path: Path, mode: Literal["rt", "at"]) -> IO[str]:
    """Open a file of learning runs as text ("rt", "at"), compressed if its name ends with ``.gz``."""
    if path.suffix == ".gz":
        return gzip.open(path, mode, encoding="utf-8")
    return path.open(mode, encoding="utf-8")


def read_runs(path: str | Path) -> list[LearningRun]:
    """Return the runs of a JSON Lines file, sorted by task, trainer, variant, and seed.

    The list is empty if the file does not exist. A file whose name ends with ``.gz`` is compressed.

    Raises:
        TraceError: A line is not a learning run; the message names the file and the line.
    """
    path, runs, lines = Path(path), [], []
    if path.exists():
        with open_runs(path, "rt") as file:
            lines = file.read().splitlines()
    for number, line in enumerate(lines, 1):
        try:
            runs.append(LearningRun.from_line(line))
        except TraceError as error:
            raise TraceError(f"{path}:{number}: {error}") from None
    return sorted(runs, key=lambda run: (run.task, run.trainer, run.variant, run.seed))


def compare_learning(runs: Iterable[LearningRun]) -> list[Equivalence]:
    """Compare every trainer and variant with the reference trainer's ReBN runs, task by task.

    The interval is the t interval of the differences of paired seeds, with coverage `COVERAGE`. All runs are
    included. Tasks without reference runs are omitted.
    """
    groups: dict[tuple[str, str, str], list[LearningRun]] = {}
    for run in runs:
        groups.setdefault((run.task, run.trainer, run.variant), []).append(run)
    results = []
    for (task, trainer, variant), group in groups.items():
        reference = groups.get((task, REFERENCE, REBN))
        if reference is None or group is reference:
            continue
        margin = max(0.0, MARGIN * fmean(run.after - run.before for run in reference))
        result = Equivalence(task, trainer, variant, sorted(group, key=lambda run: run.seed), margin)
        _compare(result, {run.seed: run for run in reference})
        results.append(result)
    return results


def _compare(result: Equivalence, reference: dict[int, LearningRun]) -> None:
    if not result.margin:
        result.obstacles.append("the reference trainer's success does not rise, so there is no margin")
    for run in result.runs:
        other = reference.get(run.seed)
        if other is None:
            result.obstacles.append(f"the reference trainer has no run with seed {run.seed}")
        elif run.model != other.model:
            result.obstacles.append(f"seed {run.seed} starts from different weights, {run.model[:12]}")
        elif run.budget != other.budget:
            names = [name for name, value in run.budget.items() if other.budget.get(name) != value]
            result.obstacles.append(
                f"seed {run.seed} has a different budget: {', '.join(names) or 'fewer options'}"
            )
    pairs = [(run, reference[run.seed]) for run in result.runs if run.seed in reference]
    if pairs:
        result.interval = estimate_t([run.after - other.after for run, other in pairs], COVERAGE)
