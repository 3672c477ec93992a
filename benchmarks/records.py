"""Recorded learning runs, one line of a JSON Lines file each, the source of the figures and tables."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any

from gem_core._util.files import write_atomically
from gem_core.checker.fingerprint import fingerprint
from gem_core.tasks import EnvChoice
from gem_core.train.report import COLORS, new_figure, save_figure, smooth

ROOT = Path(__file__).resolve().parents[1]
OUTDATED = (
    "Prompts, items, or rewards have changed since these runs, which are due to be repeated. The commits in",
    "runs.jsonl reproduce the numbers.",
)
"""Note below a table with `outdated` records."""


@dataclass(frozen=True)
class Record:
    """One learning run.

    Attributes:
        name: Name of the variant or family.
        seed: Seed of the run.
        command: Command that started the run.
        commit: Short hash of the commit that ran or recorded it.
        before: Metrics for the table, on the evaluation tasks with the initial weights.
        after: Metrics for the table, on the evaluation tasks with the final weights.
        steps: Metrics for the figure, on the training episodes, one number per step.
        machine: Processor, number of usable cores, and versions of Python and torch.
        config: All options of the run, with the names of `TrainConfig`.
        evaluation: All metrics of both evaluations: maps "before" and "after" to environments to metrics.
        fingerprints: Maps each evaluation environment to its fingerprint when the run was recorded.
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

    @classmethod
    def of_run(
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
        (before,), (after,) = evaluation["before"].values(), evaluation["after"].values()
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        history = [json.loads(line) for line in lines]
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return cls(
            name,
            seed,
            command,
            subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True, cwd=ROOT).strip(),
            {metric: before[metric] for metric in table},
            {metric: after[metric] for metric in table},
            {metric: [step.get(metric) for step in history] for metric in figure},
            machine(),
            {option: value for option, value in config.items() if option not in ("out", "model")},
            evaluation,
            {env: current_fingerprint(env) for env in config["eval_env"] or config["env"]},
        )

    def curve(self, metric: str) -> list[float]:
        """Return a metric of the steps, averaged over five steps; NaN where a step lacks the metric."""
        return smooth([float("nan") if value is None else value for value in self.steps[metric]], 5)

    def change(self, metric: str) -> str:
        """Return a metric before and after training, for a table."""
        return f"{self.before[metric]:.3f} → {self.after[metric]:.3f}"


@cache
def current_fingerprint(env: str) -> str:
    """Return the fingerprint of an environment, given as for `gem-core train --env`."""
    with EnvChoice.parse(env).make() as made:
        return fingerprint(made)


def outdated(records: Iterable[Record]) -> bool:
    """Return whether an environment has changed since one of the runs, or a run has no fingerprint."""
    return any(
        not record.fingerprints
        or any(current_fingerprint(env) != recorded for env, recorded in record.fingerprints.items())
        for record in records
    )


def machine() -> str:
    """Return a description of this machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"{platform.system()} {platform.machine()}, {cores} cores, Python {platform.python_version()}, "
        f"torch {version('torch')}, transformers {version('transformers')}"
    )


def read_records(path: Path) -> list[Record]:
    """Return the recorded runs of a file."""
    return [Record(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def write_records(path: Path, records: Iterable[Record]) -> None:
    """Write the runs to a file, replacing its content."""
    write_atomically(path, [json.dumps(asdict(record)) + "\n" for record in records])


def plot_variants(
    title: str, panels: Sequence[tuple[str, str]], runs: Mapping[str, Sequence[Record]], path: Path
) -> None:
    """Plot variants of a run side by side: each seed as a thin line, their mean as a thick one.

    Args:
        title: Title of the figure.
        panels: Metric and caption of each panel.
        runs: Maps the name of each variant to its runs.
        path: PNG file to write.
    """
    figure, axes = new_figure(len(panels))
    for axis, (metric, caption) in zip(axes, panels, strict=True):
        for (variant, records), color in zip(runs.items(), COLORS, strict=False):
            curves = [record.curve(metric) for record in records]
            steps = range(1, len(curves[0]) + 1)
            for curve in curves:
                axis.plot(steps, curve, color=color, alpha=0.3, linewidth=0.8)
            mean = [fmean(values) for values in zip(*curves, strict=True)]
            axis.plot(steps, mean, color=color, linewidth=2.2, label=variant)
        axis.set_title(caption, loc="left", fontsize=11)
    axes[0].legend(frameon=False)
    figure.suptitle(title, fontsize=12, fontweight="bold")
    save_figure(figure, path)
