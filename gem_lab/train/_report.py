"""Results of a training run: the learning curve, and the best and worst episodes as text."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from gem_core._observations import readable_text
from gem_core._util.files import write_atomically
from gem_core.errors import MissingDependency
from gem_core.rollout import Episode
from gem_lab.train._config import TrainConfig
from gem_lab.train._output import write_text

Metrics = dict[str, float]

COLORS = ("#1b7f5c", "#2c5fa8", "#b0562a")


@dataclass
class TrainOutcome:
    """Result of a training run.

    Attributes:
        folder: Folder of the run.
        checkpoint: Last checkpoint, a Hugging Face folder.
        history: Metrics, one dict per step.
        before: Maps an environment id to its metrics on the evaluation seeds with the initial weights.
        after: Maps an environment id to its metrics on the evaluation seeds with the final weights.
    """

    folder: Path
    checkpoint: Path
    history: list[Metrics]
    before: dict[str, Metrics]
    after: dict[str, Metrics]

    def mean(self, when: str, metric: str) -> float:
        """Return the mean of a metric over the environments that have it; NaN if none has it.

        An environment whose episodes all failed has error rates only.

        Args:
            when: Evaluation, ``"before"`` or ``"after"`` training.
            metric: Name of the metric.
        """
        values = [metrics[metric] for metrics in getattr(self, when).values() if metric in metrics]
        return fmean(values) if values else math.nan


class TrainReporter:
    """Base class for observers of a training run; its methods do nothing."""

    def note(self, text: str) -> None:
        """Report the current activity in one line."""

    def start(self, steps: int, done: int) -> None:
        """Report the start of training, with `done` of `steps` already complete."""

    def step(self, metrics: Metrics) -> None:
        """Report the metrics of a completed step."""

    def stop(self) -> None:
        """Report the end of training, before the evaluation."""

    def finish(self, outcome: TrainOutcome, before: Sequence[Episode], after: Sequence[Episode]) -> None:
        """Report the end of the run, with the episodes of the evaluations before and after training."""

    def close(self) -> None:
        """Finish reporting; no calls follow this one."""


def write_report(outcome: TrainOutcome, config: TrainConfig, episodes: Sequence[Episode]) -> None:
    """Write ``episodes.txt`` and, if requested, ``curve.png``; `episodes` come from the last evaluation."""
    write_text(outcome.folder / "episodes.txt", best_and_worst(episodes))
    if not config.curve:
        return
    title = f"{', '.join(config.env)}: {config.estimator}, gamma {config.gamma:g}"
    plot_curve(outcome, title, outcome.folder / "curve.png")


def best_and_worst(episodes: Sequence[Episode], count: int = 3) -> str:
    """Return the episodes with the highest and lowest returns as text; shorter episodes win ties."""
    played = [episode for episode in episodes if episode.trainable]
    order = sorted(played, key=lambda episode: (-episode.total_reward, len(episode.turns)))
    parts = []
    for name, some in (("Best", order[:count]), ("Worst", order[::-1][:count])):
        parts += [f"{name} episodes\n{'=' * (len(name) + 9)}\n", *(episode_text(e) + "\n" for e in some)]
    return "\n".join(parts)


def episode_text(episode: Episode) -> str:
    """Return an episode as the text of a conversation."""
    end = "solved" if episode.success else episode.error or episode.stop_reason
    lines = [f"{episode.env_id}, seed {episode.seed}: return {episode.total_reward:.2f}, {end}"]
    for number, turn in enumerate(episode.turns, 1):
        lines += [f"  env    {line}" for line in readable_text(turn.observation).splitlines()]
        answer = turn.action if turn.finish_reason == "stop" else f"{turn.action} [cut by the length limit]"
        advantage = "" if turn.advantage is None else f", advantage {turn.advantage:+.2f}"
        lines += [f"  agent  {line}" for line in answer.splitlines() or [""]]
        lines[-1] += f"   (turn {number}: reward {turn.reward:.2f}{advantage})"
    return "\n".join(lines)


def smooth(values: Sequence[float], window: int) -> list[float]:
    """Return the mean of each value and of up to `window` - 1 values before it."""
    return [fmean(values[max(0, end - window) : end]) for end in range(1, len(values) + 1)]


def new_figure(panels: int, columns: int = 4) -> tuple[Any, Any]:
    """Return a matplotlib figure that needs no display, and its axes, at most `columns` in a row."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependency("matplotlib is not installed: pip install 'gem-core[train]'") from error
    columns = min(panels, columns)
    rows = math.ceil(panels / columns)
    figure = Figure(figsize=(4.6 * columns, 3.6 * rows), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    axes = [figure.add_subplot(rows, columns, number + 1) for number in range(panels)]
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25, linewidth=0.6)
        axis.set_axisbelow(True)
        axis.set_xlabel("step")
    return figure, axes


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure as a PNG file with at most 128 colors, a third of the size that matplotlib writes."""
    from PIL import Image  # matplotlib requires Pillow

    figure.canvas.draw()
    width, height = figure.canvas.get_width_height()
    image = Image.frombytes("RGBA", (width, height), bytes(figure.canvas.buffer_rgba())).convert("RGB")
    file = io.BytesIO()
    image.quantize(128, dither=Image.Dither.NONE).save(file, "png", optimize=True)
    write_atomically(path, [file.getvalue()])


def plot_curve(outcome: TrainOutcome, title: str, path: Path) -> None:
    """Plot success, return, and turns by step, with the evaluations as dots."""
    figure, axes = new_figure(3)
    for axis, (metric, name, color) in zip(
        axes,
        (
            ("gem/success", "success", COLORS[0]),
            ("gem/return", "return", COLORS[1]),
            ("gem/turns", "turns per episode", COLORS[2]),
        ),
        strict=True,
    ):
        played = [metrics for metrics in outcome.history if metric in metrics]
        steps, values = [one["step"] for one in played], [one[metric] for one in played]
        axis.plot(steps, values, color=color, alpha=0.25, linewidth=0.8)
        smoothed = smooth(values, max(1, len(steps) // 25))
        axis.plot(steps, smoothed, color=color, linewidth=2, label="training")
        if outcome.before and outcome.after and steps:
            ends = [outcome.mean("before", metric), outcome.mean("after", metric)]
            dots = {"color": color, "markeredgecolor": "white", "markersize": 8}
            axis.plot([0, steps[-1]], ends, "o", label="evaluation", **dots)
            for x, y in zip((0, steps[-1]), ends, strict=True):
                if not math.isnan(y):
                    axis.annotate(f"{y:.2f}", (x, y), textcoords="offset points", xytext=(0, 8), ha="center")
        axis.set_title(name, loc="left", fontsize=11)
        if metric == "gem/success":
            axis.set_ylim(0, 1.08)
            axis.legend(frameon=False, loc="lower right")
    figure.suptitle(title, fontsize=12, fontweight="bold")
    save_figure(figure, path)
