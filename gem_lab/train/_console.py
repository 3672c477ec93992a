"""Console output of the trainer: a live table with a progress bar on a terminal, otherwise plain lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any, TextIO

from gem_core._util.visible import visible
from gem_core.errors import MissingDependency
from gem_core.rollout import Episode
from gem_lab.train._config import TrainConfig
from gem_lab.train._report import Metrics, TrainOutcome, TrainReporter, episode_text

_COLUMNS = (
    ("gem/return", "return"),
    ("gem/success", "success"),
    ("gem/turns", "turns"),
    ("gem/format_error_rate", "format errors"),
    ("rebn/return_std", "std of returns"),
    ("train/entropy", "entropy"),
    ("train/grad_norm", "grad norm"),
)
_SHOWN_ROWS = 8


def quiet_transformers() -> None:
    """Turn off transformers' progress bars, which would disrupt the live table and look like errors."""
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()


class ConsoleReporter(TrainReporter):
    """Reporter that prints a run to a stream, with a live table of recent steps on a terminal.

    Args:
        config: Options of the run.
        stream: Stream to print to; None for standard output.
    """

    def __init__(self, config: TrainConfig, stream: TextIO | None = None) -> None:
        try:
            from rich.console import Console
        except ImportError as error:
            raise MissingDependency(
                f"training needs the package {error.name!r}: pip install 'gem-core[train]'"
            ) from error
        quiet_transformers()
        self._config = config
        self._console = Console(file=stream or sys.stdout, highlight=False, soft_wrap=True)
        self._live: Any = None
        self._rows: list[Metrics] = []
        self._total = 0
        self._began = 0.0
        self._done_before = 0

    def note(self, text: str) -> None:
        self._console.print(f"[bold cyan]>[/] {_escape(text)}")

    def start(self, steps: int, done: int) -> None:
        self._total, self._done_before, self._began = steps, done, time.monotonic()
        self.note(
            f"training: {self._config.estimator}, gamma {self._config.gamma:g}, {steps} steps of "
            f"{self._config.episodes_per_step} episodes"
            + (" (control: advantages set to 0)" if self._config.zero_advantages else "")
        )
        if self._console.is_terminal:
            from rich.live import Live

            self._live = Live(self._table(), console=self._console, refresh_per_second=4)
            self._live.start()

    def step(self, metrics: Metrics) -> None:
        self._rows = [*self._rows, metrics][-_SHOWN_ROWS:]
        if self._live is not None:
            self._live.update(self._table())
        elif metrics["step"] in (1, self._total) or metrics["step"] % max(1, self._total // 20) == 0:
            figures = "  ".join(f"{name} {metrics[key]:.3f}" for key, name in _COLUMNS if key in metrics)
            self._console.print(f"  step {int(metrics['step']):4d}/{self._total}  {figures}")

    def stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def finish(self, outcome: TrainOutcome, before: Sequence[Episode], after: Sequence[Episode]) -> None:
        # The worst episode, because it leaves something to learn.
        numbers = range(len(before))
        index = min(numbers, key=lambda n: (before[n].success, before[n].total_reward), default=0)
        if before:
            self._episode("an episode before training", before[index])
        if after:
            self._episode("the same seed after training", after[index])
        for env_id in outcome.after:
            first, last = outcome.before.get(env_id, {}), outcome.after[env_id]
            changes = [
                f"{name} {_number(first, name)} -> {_number(last, name)}"
                for name in ("success", "return", "turns")
            ]
            self.note(f"{env_id}, sampled policy: {', '.join(changes)}")
        if self._config.curve:
            self.note(f"learning curve  {outcome.folder / 'curve.png'}")
        self.note(f"episodes        {outcome.folder / 'episodes.txt'}")
        traces = outcome.folder / "traces.jsonl"
        if traces.exists():  # without evaluations and traces of training, there are none
            self.note(f"traces          {traces}   (gem-core view {traces})")
        self.note(f"checkpoint      {outcome.checkpoint}")

    def close(self) -> None:
        self.stop()

    def _episode(self, title: str, episode: Episode) -> None:
        self._console.print(f"[bold]{title}[/]")
        self._console.print(_escape(episode_text(episode)))

    def _table(self) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("step", justify="right")
        for _, name in _COLUMNS:
            table.add_column(name, justify="right")
        for row in self._rows:
            cells = [f"{row[key]:.3f}" if key in row else "-" for key, _ in _COLUMNS]
            table.add_row(str(int(row["step"])), *cells)
        done = int(self._rows[-1]["step"]) if self._rows else self._done_before
        elapsed = time.monotonic() - self._began
        left = elapsed / max(1, done - self._done_before) * (self._total - done) if self._rows else 0.0
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            ProgressBar(total=self._total, completed=done, width=40),
            Text(f"{done}/{self._total} steps, {elapsed:.0f} s, about {left:.0f} s left", "dim"),
        )
        return Group(table, bar)


def _number(metrics: Metrics, name: str) -> str:
    """Return a metric as text, or a dash if no episode could be played."""
    value = metrics.get(f"gem/{name}")
    return "-" if value is None else f"{value:.{2 if name == 'turns' else 3}f}"


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(visible(text))
