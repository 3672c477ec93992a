"""The page of a study, drawn from its records: tables, differences from the baseline, and a figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from records import OUTDATED, RUNS, Record, outdated

from gem_core._util.files import write_atomically
from gem_core.tasks import EnvChoice
from gem_lab.eval._intervals import estimate_t
from gem_lab.train._report import new_figure, save_figure
from studies import Study, transfer
from studies.comparison import differences, select, short_name, show_interval
from studies.stats import area, iqm, iqm_difference, iqm_interval, mean_of_last

_MANY = 6
"""Number of arms above which the figure shows means only."""

_FEW = 3
"""Number of runs up to which the figure shows each of them instead of an interval."""


def draw(name: str, study: Study, records: Sequence[Record], out: Path) -> None:
    """Write ``summary.md`` and ``curves.png`` from the records, for the tasks that have any."""
    out.mkdir(parents=True, exist_ok=True)
    complete = [record for record in records if record.phase != "tuning"]
    played = {record.task for record in complete}
    tasks = {task: about for task, about in study.tasks.items() if played & {task, ""}}
    study = replace(study, tasks=tasks)
    lines = [f"# {study.title}", "", study.question, "", *_protocol(study, records, complete)]
    arms = [arm for arm in study.arms if any(record.name == arm for record in complete)]
    for task in study.tasks:
        lines += _task_table(study, task, arms, complete)
    if len(study.tasks) > 1:
        lines += _overall_table(study, arms, complete)
    lines += transfer.section(study, arms, complete, out)
    if any(record.phase == "tuning" for record in records):
        lines += _tuning_table(study, records)
    for note in study.notes:
        lines += ["", note]
    if outdated(complete):
        lines += ["", *OUTDATED]
    caption = "Training episodes, averaged over five steps."
    if _figure(study, arms, complete, out / "curves.png"):
        caption += " Lines: mean over seeds. Bands: 95% t interval."
    lines += [
        "",
        "![learning curves](curves.png)",
        "",
        caption,
        "",
        *_commands(study.command or f"make study NAME={name}", records),
    ]
    write_atomically(out / "summary.md", ["\n".join(lines) + "\n"])


def _protocol(study: Study, records: Sequence[Record], complete: Sequence[Record]) -> list[str]:
    """Return a description of the protocol that the recorded runs followed."""
    seeds = sorted({record.seed for record in complete})
    tuned = sorted({record.seed for record in records if record.phase == "tuning"})
    text = "The sampled policy is evaluated on held-out seeds. "
    text += f"{len(seeds)} seeds per arm ({_range(seeds)})" if len(seeds) != 1 else "One run per arm"
    if len(seeds) == 1:
        text += "."
    elif study.models is None:
        text += "; runs with the same seed start from the same model."
    else:
        plural = "s" * (len(study.models) > 1)
        text += f"; runs start from {len(study.models)} initial model{plural}, the same for all arms."
    if tuned:
        options = " and ".join(study.grid)
        text += (
            f" {options} is tuned per arm and task on other seeds ({_range(tuned)}), by the "
            f"{short_name(study.tuning_metric)} of the training episodes in the last quarter of the steps."
        )
    difference = " Difference: mean over paired seeds, with a 95% t interval." if study.baseline else ""
    return [
        text,
        "",
        "Before: mean before training. After: interquartile mean (IQM) after training, with its 95% interval",
        "by the stratified bootstrap over seeds. Area: mean of the curve of evaluations, or of training",
        "episodes if there was no evaluation during training. Training: mean over the training episodes in",
        f"the last tenth of the steps.{difference}",
    ]


def _task_table(study: Study, task: str, arms: Sequence[str], records: Sequence[Record]) -> list[str]:
    env = study.tasks[task].env
    shared = sum(other.env == env for other in study.tasks.values()) > 1
    lines = ["", f"## {f'{task}: ' * shared}`{env}`"]
    lines += ["", f"{study.tasks[task].note} {_budget(study, task, records)}".strip()]
    head = ["arm", *study.grid, "seeds", "before", "after (IQM)", "area", "training"]
    if study.baseline:
        head.append(f"difference from {study.baseline}")
    base = select(records, task, study.baseline)
    for metric in (study.metric, *study.more_metrics):
        lines += [
            "",
            f"{short_name(metric).capitalize()}:",
            "",
            f"| {' | '.join(head)} |",
            "|---" * len(head) + "|",
        ]
        for arm in arms:
            if mine := select(records, task, arm):
                cells = [arm, *_cells(study, metric, mine)]
                if study.baseline:
                    cells.append(
                        "" if arm == study.baseline else show_interval(differences(mine, base, metric))
                    )
                lines.append(f"| {' | '.join(cells)} |")
    return [*lines, *_pair_table(study, task, records)]


def _pair_table(study: Study, task: str, records: Sequence[Record]) -> list[str]:
    """Return the table of the study's further comparisons."""
    metrics = (study.metric, *study.more_metrics)
    rows = [
        [f"{first} minus {second}", *(show_interval(differences(ours, theirs, metric)) for metric in metrics)]
        for first, second in study.pairs
        if (ours := select(records, task, first)) and (theirs := select(records, task, second))
    ]
    if not rows:
        return []
    head = ["difference", *map(short_name, metrics)]
    table = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return ["", "Further differences:", "", table[0], "|---" * len(head) + "|", *table[1:]]


def _budget(study: Study, task: str, records: Sequence[Record]) -> str:
    """Return the numbers of steps and episodes of a task's runs."""
    mine = [record for record in records if record.task in (task, "")]
    env = EnvChoice.parse(study.tasks[task].env).label
    # Old records have no config.
    config = {**study.options, **study.tasks[task].options, **(mine[0].config if mine else {})}
    # An environment with few held-out items is evaluated on all of them.
    counts = {record.raw[env]["seeds"][1] for record in mine if env in record.raw}
    held_out = f"{max(counts, default=config['eval_episodes'])} held-out seeds."
    if _sizes_differ(mine):
        return f"{config['steps'] * config['episodes_per_step']:,} episodes; {held_out}"
    steps, episodes = config["steps"], config["episodes_per_step"]
    return f"{steps} steps of {episodes} episodes, {steps * episodes:,} in all; {held_out}"


def _sizes_differ(records: Sequence[Record]) -> bool:
    """Return whether the runs differ in their number of episodes per step."""
    return len({record.config.get("episodes_per_step") for record in records}) > 1


def _cells(study: Study, metric: str, records: Sequence[Record]) -> list[str]:
    """Return the cells of an arm, except for its name and the difference from the baseline."""
    mine = [record for record in records if metric in record.before and metric in record.after]
    if not mine:  # such as the turns of solved episodes, if none was solved, or a metric of training steps
        trained = [value for record in records if not math.isnan(value := _training(record, metric))]
        return [
            *(f"{records[0].config[option]:g}" for option in study.grid),
            str(len(trained)),
            *("", "", ""),
            f"{fmean(trained):.3f}" if trained else "",
        ]
    after = [record.after[metric] for record in mine]
    low, high = iqm_interval([after])
    return [
        *(f"{mine[0].config[option]:g}" for option in study.grid),
        str(len(mine)),
        f"{fmean(record.before[metric] for record in mine):.3f}",
        f"{iqm([after]):.3f}" + (f" ({low:.3f} to {high:.3f})" if len(mine) > 1 else ""),
        _number(fmean(_area(record, metric) for record in mine)),
        _number(fmean(_training(record, metric) for record in mine)),
    ]


def _overall_table(study: Study, arms: Sequence[str], records: Sequence[Record]) -> list[str]:
    """Return the table over all tasks, with the seeds that every arm has on a task."""
    metric = study.metric
    values = {
        (task, arm): {r.seed: r.after[metric] for r in select(records, task, arm) if metric in r.after}
        for task in study.tasks
        for arm in arms
    }
    if len(arms) < 2:
        return []
    seeds = {task: sorted(set.intersection(*({*values[task, arm]} for arm in arms))) for task in study.tasks}
    tasks = [task for task in study.tasks if seeds[task]]
    if not tasks:
        return []
    shared = (
        f"{len(tasks)} task{'s' * (len(tasks) != 1)} and the seeds that all arms have, {short_name(metric)}"
    )
    lines = ["", "## All tasks", "", f"IQM over {shared}.", ""]
    lines += ["| arm | after (IQM) | IQM minus baseline |", "|---" * 3 + "|"]

    def strata(arm: str) -> list[list[float]]:
        return [[values[task, arm][seed] for seed in seeds[task]] for task in tasks]

    for arm in arms:
        low, high = iqm_interval(strata(arm))
        gap = ""
        if study.baseline in arms and arm != study.baseline:
            mean, *ends = iqm_difference(strata(arm), strata(study.baseline))
            gap = f"{mean:+.3f} ({ends[0]:+.3f} to {ends[1]:+.3f})"
        lines.append(f"| {arm} | {iqm(strata(arm)):.3f} ({low:.3f} to {high:.3f}) | {gap} |")
    return lines


def _tuning_table(study: Study, records: Sequence[Record]) -> list[str]:
    """Return the tuning metric at every point of the grid."""
    points = list(study.points())
    lines = [
        "",
        "## Tuning",
        "",
        f"{short_name(study.tuning_metric)} of the training episodes in the last quarter:",
    ]
    head = [", ".join(f"{option} {value:g}" for option, value in point.items()) for point in points]
    lines += ["", f"| task | arm | {' | '.join(head)} |", "|---" * (2 + len(head)) + "|"]
    tuning = [record for record in records if record.phase == "tuning"]
    for task in study.tasks:
        for arm in study.arms:
            mine = select(tuning, task, arm)
            if not mine:
                continue
            cells = []
            for point in points:
                ends = [
                    mean_of_last(record.curve(study.tuning_metric), 4)
                    for record in mine
                    if all(record.config[option] == value for option, value in point.items())
                ]
                cells.append(f"{fmean(ends):.3f}" if ends else "")
            lines.append(f"| {task} | {arm} | {' | '.join(cells)} |")
    return lines


def _commands(command: str, records: Sequence[Record]) -> list[str]:
    cpu = sum(record.cpu_s for record in records)
    machines = sorted({record.machine for record in records if record.machine})
    commits = sorted({record.commit for record in records if record.commit})
    lines = [
        f"[{RUNS}]({RUNS}) has the command, the commit, and the curves of each run. New records also",
        "contain all options and the results of each evaluation seed.",
        f"Commit{'s' * (len(commits) > 1)}: {', '.join(commits)}.",
    ]
    if cpu:
        runs = f"all {len(records)} runs" if len(records) > 1 else "the run"
        lines.append(f"CPU time of {runs}: {cpu / 60:.0f} minutes ({'; '.join(machines)}).")
    return [*lines, "", "```text", command, "```"]


def _figure(study: Study, arms: Sequence[str], records: Sequence[Record], path: Path) -> bool:
    """Draw the learning curves, and return whether there are bands."""
    import matplotlib

    palette = [matplotlib.colormaps["tab10"](index % 10) for index in range(len(arms))]
    styles = ["-" if index < 10 else "--" for index in range(len(arms))]
    tasks = [task for task in study.tasks if any(record.task in (task, "") for record in records)]
    if len(tasks) == 1:
        panels = [(tasks[0], metric, caption) for metric, caption in study.panels]
    else:
        panels = [(task, study.metric, task) for task in tasks]
    figure, axes = new_figure(max(1, len(panels)))
    by_episode, bands = _sizes_differ(records), False
    for axis, (task, metric, caption) in zip(axes, panels, strict=False):
        for arm, color, style in zip(arms, palette, styles, strict=True):
            mine = select(records, task, arm)
            curves = [record.curve(metric) for record in mine if record.steps[metric]]
            if not curves:
                continue
            size = mine[0].config["episodes_per_step"] if by_episode else 1
            steps = range(size, size * (len(curves[0]) + 1), size)
            if len(arms) <= _MANY and len(curves) > _FEW:
                intervals = [estimate_t(values) for values in zip(*curves, strict=True)]
                low, high = ([interval[end] for interval in intervals] for end in ("low", "high"))
                axis.fill_between(steps, low, high, color=color, alpha=0.15, linewidth=0)
                bands = True
            elif len(arms) <= _MANY:
                for curve in curves:
                    axis.plot(steps, curve, color=color, alpha=0.25, linewidth=0.8)
            mean = [fmean(values) for values in zip(*curves, strict=True)]
            axis.plot(steps, mean, style, color=color, linewidth=2, label=arm)
        axis.set_title(caption, loc="left", fontsize=11)
        if by_episode:
            axis.set_xlabel("episode")
    figure.legend(*axes[0].get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside right center")
    title = study.title if len(study.tasks) == 1 else f"{study.title}: {short_name(study.metric)}"
    figure.suptitle(title, fontsize=12, fontweight="bold")
    save_figure(figure, path)
    return bands


def _area(record: Record, metric: str) -> float:
    if len(record.evaluations) > 2 and all(metric in evaluation for evaluation in record.evaluations):
        steps = [evaluation["step"] for evaluation in record.evaluations]
        return area(steps, [evaluation[metric] for evaluation in record.evaluations])
    curve = _values(record, metric)
    return area(range(len(curve)), curve) if curve else math.nan


def _training(record: Record, metric: str) -> float:
    return mean_of_last(_values(record, metric), 10)


def _values(record: Record, metric: str) -> list[float]:
    return [value for value in record.steps[metric] if value is not None]


def _number(value: float) -> str:
    """Return a number for a table; "" for NaN, as of a metric that exists only before and after training."""
    return "" if math.isnan(value) else f"{value:.3f}"


def _range(seeds: Sequence[int]) -> str:
    if not seeds:
        return "none"
    consecutive = list(seeds) == list(range(seeds[0], seeds[-1] + 1))
    return f"{seeds[0]} to {seeds[-1]}" if consecutive and len(seeds) > 1 else ", ".join(map(str, seeds))


def unfinished(study: Study, records: Sequence[Record]) -> dict[str, Any]:
    """Return the number of runs on evaluation seeds by arm, for arms that have fewer than planned."""
    planned = len(study.seeds) * len(study.tasks)
    counts = {arm: sum(r.name == arm and r.phase != "tuning" for r in records) for arm in study.arms}
    return {arm: count for arm, count in counts.items() if count < planned}
