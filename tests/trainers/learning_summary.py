"""``summary.md`` and ``curves.png`` about the learning runs of all trainers.

``python -m tests.trainers.learning_summary`` writes them.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from gem_core._util.files import write_atomically
from gem_lab.consistency._learning import (
    LEAST_SEEDS,
    MARGIN,
    REBN,
    Equivalence,
    LearningRun,
    compare_learning,
    read_runs,
)
from gem_lab.consistency._learning_page import series_name, strokes
from gem_lab.train._report import new_figure, save_figure, smooth
from tests.trainers.learning import BUDGETS, EARLIER, RESULTS, TRAINERS, Budget


def main(source: Path = RESULTS.parent, out: Path = RESULTS.parent) -> int:
    """Write both files.

    Args:
        source: Folder with the runs.
        out: Folder to write to.
    """
    runs = [*read_runs(source / "runs.jsonl.gz"), *read_runs(source / "earlier.jsonl.gz")]
    runs.sort(
        key=lambda run: (list(BUDGETS).index(run.task), TRAINERS.index(run.trainer), run.variant != REBN)
    )
    results = compare_learning(runs)
    draw([run for run in runs if run.task not in EARLIER], out / "curves.png")
    tasks = dict.fromkeys(run.task for run in runs)
    parts = [section(name, [r for r in runs if r.task == name], results) for name in tasks]
    text = f"""# The same run in every trainer

Success of the sampled policy on evaluation tasks, before and after training with ReBN: the same initial
weights, the same budget, paired seeds. The last column has a trainer's mean difference from the reference
trainer, `gem-core train`, with its 90% t interval. The margin of a task is {MARGIN:.0%} of the reference
trainer's mean gain. "Equivalent" means that the interval lies within the margin, "differs" that it lies
outside, and "undecided" that it contains an end of the margin; with fewer than {LEAST_SEEDS} seeds, the
column only counts them. ± is the standard deviation over the seeds. In a "control", all advantages are zero;
"per-token" is a deliberate fault, a discount per token instead of per turn.

Every run is recorded with its command, commit, budget, and success at each step:
[runs.jsonl.gz](runs.jsonl.gz) has the runs of the current budgets, and [earlier.jsonl.gz](earlier.jsonl.gz)
the runs of the abandoned budgets, which have 128 episodes per step. `gem-core consistency --level 4 --records
docs/results/learning/runs.jsonl.gz` prints the verdicts; with `--html FILE` it also writes a page with curves
and commands.

The runs of the game and of `letters` were recorded before the prompts of these tasks showed an example of an
action. The commit of each run reproduces its numbers on the same kind of processor. All trainers of a task
had the same prompt, so the comparison holds; with the current prompts, the rates are different.
`rg:letter_counting(example=False)` has the recorded prompt of `letters`.

![success in training](curves.png)

{chr(10).join(parts)}
"""
    write_atomically(out / "summary.md", [text])
    return 0


def section(name: str, runs: Sequence[LearningRun], results: Sequence[Equivalence]) -> str:
    """Return a table of the runs of one budget."""
    budget = BUDGETS[name]
    compared = [result for result in results if result.task == name]
    verdicts = {(each.trainer, each.variant): each.verdict for each in compared}
    margin = f" Margin: ±{compared[0].margin:.3f}." if compared else ""
    rows = []
    for trainer, variant in dict.fromkeys((run.trainer, run.variant) for run in runs):
        mine = [run for run in runs if (run.trainer, run.variant) == (trainer, variant)]
        after = ", ".join(f"{run.after:.3f}" for run in sorted(mine, key=lambda run: run.seed))
        ends = [run.after for run in mine]
        spread = f" ± {stdev(ends):.3f}" if len(ends) > 1 else ""
        cells = (
            series_name(trainer, variant),
            mine[0].version,
            f"{fmean(run.before for run in mine):.3f} → {fmean(ends):.3f}{spread}",
            after,
            verdicts.get((trainer, variant), "the reference"),
        )
        rows.append(f"| {' | '.join(cells)} |")
    abandoned = ", abandoned" if name in EARLIER else ""
    return f"""## {name}{abandoned}

`{budget.env}`, gamma {budget.gamma:g}, {budget.steps} steps of {budget.prompts} seeds with
{budget.samples} episodes each, {budget.updates} updates per step, learning rate {budget.lr:g}.{margin}
Initial weights: `{made_by(budget)}`, SHA-256 `{runs[0].model[:16]}…`.

| trainer | version | mean success | after, by seed | against the reference |
|---|---|---|---|---|
{chr(10).join(rows)}
"""


def made_by(budget: Budget) -> str:
    """Return the command that created the initial weights."""
    return f"gem-core tiny --env {shlex.quote(budget.env)} {budget.tiny} --out tiny"


def draw(runs: Sequence[LearningRun], path: Path) -> None:
    """Plot success over steps, one panel per budget: thin lines for seeds, thick lines for means."""
    tasks = list(dict.fromkeys(run.task for run in runs))
    looks = strokes(runs)
    figure, axes = new_figure(len(tasks))
    for axis, task in zip(axes, tasks, strict=True):
        mine = [run for run in runs if run.task == task]
        for trainer, variant in dict.fromkeys((r.trainer, r.variant) for r in mine):
            curves = [smooth(r.success, 5) for r in mine if (r.trainer, r.variant) == (trainer, variant)]
            name = series_name(trainer, variant)
            color, dashes = looks[name]
            steps = range(1, len(curves[0]) + 1)
            for curve in curves:
                axis.plot(steps, curve, color=color, alpha=0.15, linewidth=0.7)
            mean = [fmean(values) for values in zip(*curves, strict=True)]
            style: Any = (0, tuple(map(float, dashes.split()))) if dashes else "-"
            axis.plot(steps, mean, color=color, linestyle=style, linewidth=1.8, label=name)
        axis.set_title(f"{task}: success", loc="left", fontsize=11)
        axis.legend(frameon=False, fontsize=7)
    save_figure(figure, path)


if __name__ == "__main__":
    sys.exit(main())
