"""The recorded exam: every estimator on every task, sweeps, and learning curves.

    python benchmarks/exam_study.py record       # writes exam, sizes, gamma, groups, and turns.jsonl
    python benchmarks/exam_study.py record exam  # writes only exam.jsonl.gz
    python benchmarks/exam_study.py learning     # writes learning.jsonl.gz
    python benchmarks/exam_study.py draw         # writes summary.md and the plots from them

The files are in docs/results/exam. An interrupted recording continues; its finished parts are in runs/exam.
The learning curves of the transformer come from `python benchmarks/study.py estimators`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import correlation, fmean, stdev
from typing import Any

from records import RUNS, read_records, read_rows, write_rows

from gem_core._util.files import write_atomically
from gem_lab.exam import Exam, run
from gem_lab.exam._exact import STAGES, expected_return, policies_at
from gem_lab.exam._inputs import Candidate
from gem_lab.exam._learning import learning_curve
from gem_lab.exam._page import line_plot
from gem_lab.exam._sweeps import sweep_gamma, sweep_groups, sweep_turns
from gem_lab.exam._tasks import get_task, list_tasks

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "results" / "exam"
TRANSFORMER = ROOT / "docs" / "results" / "estimators" / RUNS
LEARNERS = ("reinforce", "rebn", "grpo", "rloo", "mt_grpo", "gigpo")
SEEDS = range(10)
STEPS, BATCH = 60, 64
COLUMNS = (
    "estimator", "task", "stage", "gamma", "batch_size", "group_size", "batches", "cosine", "cosine_low",
    "cosine_high", "bias", "bias_low", "bias_high", "p_value", "scale", "cosine_discounted",
    "cosine_per_turn", "snr", "alignment", "credit",
)  # fmt: skip
"""Recorded attributes of `Result`, for the sum over tokens."""
DRAWN = ("stop", "tool", "mixture")
OVERVIEW = ("mt_grpo", "grpo", "rebn", "rloo")
"""Estimators in the plot of the page about the exam."""
SIZES = (8, 64, 512, 4096)
SHORT = ("stop", "guess", "tool", "mixture")
"""Tasks with short episodes, for the sweep over batch sizes."""


def record(out: Path, names: Sequence[str], workers: int) -> None:
    """Run the exams with these names (all if there are none) and write their records."""
    exams: dict[str, Callable[..., Exam]] = {
        "exam": partial(run, stages=tuple(STAGES)),
        "sizes": partial(
            run, tasks=SHORT, stages=("initial",), batch_sizes=SIZES, aggregations=("token-sum",)
        ),
        "gamma": sweep_gamma,
        "groups": sweep_groups,
        "turns": sweep_turns,
    }
    for name in names or exams:
        write_exam(
            out / f"{name}.jsonl.gz",
            exams[name](workers=workers, resume=ROOT / "runs" / "exam", advance=partial(_report, name)),
        )


def record_learning(out: Path, workers: int) -> None:
    """Train the table policies and write the record of their learning curves."""
    jobs = [(task, name, seed) for task in list_tasks() for name in LEARNERS for seed in SEEDS]
    with ProcessPoolExecutor(workers) as pool:
        curves = list(pool.map(_learn, jobs, chunksize=10))
    lines = [{**_origin(), "steps": STEPS, "batch_size": BATCH, "seeds": list(SEEDS)}]
    for task in list_tasks():
        first, best = (expected_return(get_task(task), p) for p in _ends(task))
        lines += [
            {
                "task": task,
                "estimator": name,
                "first": _short(first),
                "best": _short(best),
                "mean_return": [
                    _short(fmean(curve))
                    for job, curve in zip(jobs, curves, strict=True)
                    if job[:2] == (task, name)
                ],
            }
            for name in LEARNERS
        ]
    write_rows(out / "learning.jsonl.gz", lines)


def _report(name: str, done: float) -> None:
    print(f"{name}: {done:.0%}", flush=True)


def write_exam(path: Path, exam: Exam) -> None:
    """Write a header, the certificates, and the results for the sum over tokens."""
    header = {**_origin(), "config": exam.config, "skipped": exam.skipped, "columns": COLUMNS}
    certificates = [
        {key: _short(value) for key, value in asdict(c).items() if key != "reason"} for c in exam.certificates
    ]
    rows = [[_short(getattr(row, name)) for name in COLUMNS] for row in exam.select(aggregation="token-sum")]
    write_rows(path, [header, {"certificates": certificates}, *rows])


def read_exam(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
    """Return header, certificates, and results of a recorded exam."""
    header, certificates, *rows = read_rows(path)
    results = [dict(zip(header["columns"], row, strict=True)) for row in rows]
    return header, certificates["certificates"], results


def draw(folder: Path, out: Path) -> None:
    """Write summary.md and the plots."""
    header, certificates, rows = read_exam(folder / "exam.jsonl.gz")
    _, _, gammas = read_exam(folder / "gamma.jsonl.gz")
    _, _, groups = read_exam(folder / "groups.jsonl.gz")
    _, _, sizes = read_exam(folder / "sizes.jsonl.gz")
    _, _, turns = read_exam(folder / "turns.jsonl.gz")
    learning = read_rows(folder / "learning.jsonl.gz")
    plots = {}
    for task in DRAWN:
        chosen = [r for r in sizes if r["task"] == task and r["batches"]]
        plots[f"bias-{task}"] = line_plot(
            f"relative bias on {task}, initial policy", _series(chosen, "batch_size", "bias"),
            x_label="episodes per batch", log_y=True, legend=True,
        )  # fmt: skip
    chosen = [r for r in sizes if r["task"] == "stop" and r["batches"]]
    overview = _series(chosen, "batch_size", "bias")
    plots["overview"] = line_plot(
        "relative bias on stop, initial policy", {name: overview[name] for name in OVERVIEW},
        x_label="episodes per batch", log_y=True, legend=True,
    )  # fmt: skip
    chosen = [r for r in gammas if r["task"] == "slippery" and r["batches"]]
    plots["gamma"] = line_plot(
        "cosine to the gradient of the return on slippery, B = 64", _series(chosen, "gamma", "cosine"),
        x_label="gamma", log_x=False, legend=True,
    )  # fmt: skip
    for task in ("stop", "mixture"):
        chosen = [r for r in groups if r["task"] == task and r["batches"]]
        plots[f"groups-{task}"] = line_plot(
            f"relative bias on {task}, initial policy, B = 64", _series(chosen, "group_size", "bias"),
            x_label="episodes per group", log_y=True, legend=True,
        )  # fmt: skip
    for row in turns:
        row["turns"] = 64 if row["task"] == "chain-sparse" else int(row["task"].rpartition("-")[2])
    plots["turns"] = line_plot(
        "mean cosine of a batch on sparse chains, B = 128",
        _series([r for r in turns if r["batches"]], "turns", "alignment"), x_label="turns", legend=True,
    )  # fmt: skip
    chosen = [r for r in sizes if r["task"] == "stop" and r["batches"]]
    plots["snr"] = line_plot(
        "signal-to-noise ratio on stop, initial policy", _series(chosen, "batch_size", "snr"),
        x_label="episodes per batch", log_y=True, legend=True,
    )  # fmt: skip
    for name, plot in plots.items():
        write_atomically(out / f"{name}.svg", [plot])
    parts = [
        "# The estimator exam\n",
        "Generated by `python benchmarks/exam_study.py draw` from the records in this folder. See "
        "[the estimator exam](../../concepts/exam.md) for the method.\n",
        f"Command `{header['command']}`, commit `{header['commit']}`, seed {header['config']['seed']}, "
        f"policies {', '.join(header['config']['stages'])}, batch sizes "
        f"{', '.join(map(str, header['config']['batch_sizes']))}, groups of "
        f"{header['config']['group_sizes'][0]}, gamma 1, unless a section says otherwise. Brackets hold 95% "
        "intervals.\n",
        "## Certificates, sum over tokens\n",
        _certificate_table(certificates, rows, "token-sum"),
        "\nSNR is the geometric mean over tasks and policies of the signal-to-noise ratio at the largest "
        "batch size, relative to REINFORCE.\n",
        *(
            f"## Relative bias at the largest batch size, {stage} policy\n\n{_task_table(rows, stage)}\n"
            for stage in header["config"]["stages"]
        ),
        "## Relative bias against batch size: initial policy\n",
        *(
            f"On `{task}`:\n\n{_sweep_table([r for r in sizes if r['task'] == task], 'batch_size')}\n"
            for task in SHORT
        ),
        "## Relative bias against group size: initial policy, batches of 64\n",
        *(
            f"On `{task}`:\n\n{_sweep_table([r for r in groups if r['task'] == task], 'group_size')}\n"
            for task in ("stop", "guess", "mixture")
        ),
        "## Cosine against gamma: slippery, halfway, batches of 64\n",
        "Cosine to the gradient of the undiscounted return.\n",
        _sweep_table([r for r in gammas if r["task"] == "slippery"], "gamma", "cosine"),
        "\n## Certificates by aggregation\n",
        _aggregation_table(certificates),
        "\n## Learning with the exact policy\n",
        _learning_table(learning, rows),
        "\n## Learning with a transformer\n",
        _transformer_table(learning, rows),
        "\n## Plots\n",
        *(f"![{name}]({name}.svg)\n" for name in plots),
    ]
    write_atomically(out / "summary.md", ["\n".join(parts)])


def _certificate_table(
    certificates: list[dict[str, Any]], rows: list[dict[str, Any]], aggregation: str
) -> str:
    size = max(row["batch_size"] for row in rows)
    lines = ["| estimator | verdict | relative bias | on | SNR |", "|---|---|---|---|---|"]
    for c in certificates:
        if c["aggregation"] == aggregation:
            bias = f"{c['bias']:.1%} [{c['bias_low']:.1%}, {c['bias_high']:.1%}]"
            if c["verdict"] in ("unbiased", "not decided"):
                bias = f"below {max(c['bias'], 0.001):.1%}"
            where = f"{c['task']}, {c['stage']}, B = {c['batch_size']}"
            lines.append(
                f"| `{c['estimator']}` | {c['verdict']} | {bias} | {where} | {_gain(rows, c, size)} |"
            )
    return "\n".join(lines)


def _gain(rows: list[dict[str, Any]], certificate: dict[str, Any], size: int) -> str:
    def ratios(name: str) -> dict[tuple[str, str], float]:
        return {
            (r["task"], r["stage"]): r["snr"]
            for r in rows
            if r["estimator"] == name and r["batch_size"] == size and r["snr"]
        }

    plain, own = ratios("reinforce"), ratios(certificate["estimator"])
    product = 1.0
    for key, value in own.items():
        product *= (value / plain[key]) ** (1 / len(own))
    return f"{product:.2f}"


def _task_table(rows: list[dict[str, Any]], stage: str) -> str:
    size = max(row["batch_size"] for row in rows)
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    cells = {
        (r["estimator"], r["task"]): f"{r['bias']:.1%}" + ("" if r["p_value"] < 1e-4 else "*")
        for r in rows
        if r["stage"] == stage and r["batch_size"] == size
    }
    lines = [f"| estimator | {' | '.join(tasks)} |", "|---" * (len(tasks) + 1) + "|"]
    lines += [
        f"| `{name}` | {' | '.join(cells.get((name, task), 'rejected') for task in tasks)} |"
        for name in dict.fromkeys(row["estimator"] for row in rows)
    ]
    return "\n".join(lines) + "\n\nAn asterisk marks a bias that is not significant (p of at least 0.0001)."


def _sweep_table(rows: list[dict[str, Any]], x: str, y: str = "bias") -> str:
    """Return a table of y with its interval, one row per estimator and one column per sampled x."""
    rows = [row for row in rows if row["batches"]]
    xs = list(dict.fromkeys(row[x] for row in rows))
    form = "{:.1%} [{:.1%}, {:.1%}]" if y == "bias" else "{:.3f} [{:.3f}, {:.3f}]"
    cells = {(r["estimator"], r[x]): form.format(r[y], r[f"{y}_low"], r[f"{y}_high"]) for r in rows}
    names = dict.fromkeys(row["estimator"] for row in rows)
    exact = {name for name in names if y == "bias" and _largest(rows, name) < 0.0005}
    lines = [f"| estimator | {' | '.join(f'{value:g}' for value in xs)} |", "|---" * (len(xs) + 1) + "|"]
    lines += [
        f"| `{name}` | {' | '.join(cells.get((name, value), 'rejected') for value in xs)} |"
        for name in names
        if name not in exact
    ]
    if exact:
        lines += ["", f"Below 0.05% everywhere: {', '.join(f'`{name}`' for name in names if name in exact)}."]
    return "\n".join(lines)


def _largest(rows: list[dict[str, Any]], name: str) -> float:
    """Return the largest upper end of the intervals of an estimator's bias."""
    return max(float(row["bias_high"]) for row in rows if row["estimator"] == name)


def _aggregation_table(certificates: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(c["aggregation"] for c in certificates))
    cells = {(c["estimator"], c["aggregation"]): c for c in certificates}
    lines = [f"| estimator | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for estimator in dict.fromkeys(c["estimator"] for c in certificates):
        row = []
        for name in names:
            c = cells[estimator, name]
            detail = "" if c["verdict"] == "unbiased" else f", {c['bias']:.0%} on {c['task']}"
            row.append(f"{c['verdict']}{detail}")
        lines.append(f"| `{estimator}` | {' | '.join(row)} |")
    return "\n".join(lines)


def _learning_table(learning: list[dict[str, Any]], rows: list[dict[str, Any]]) -> str:
    """Return a table of the mean return over the curve, as a share of the gain of exact ascent."""
    header, *runs = learning
    tasks = list(dict.fromkeys(run["task"] for run in runs))
    lines = [f"| task | {' | '.join(LEARNERS)} | rank correlation |", "|---" * (len(LEARNERS) + 2) + "|"]
    for task in tasks:
        shares = _shares(runs, task)
        order = _spearman(_forecast(rows, task, header["batch_size"]), list(map(fmean, shares)))
        lines.append(f"| {task} | {' | '.join(map(_interval, shares))} | {order:.2f} |")
    return (
        f"Mean over the curve of {header['steps']} steps of {header['batch_size']} episodes (Adam, learning "
        "rate 0.05) of the exact return, as a share of the gain of the exam's late policy; mean and 95% "
        f"interval over {len(header['seeds'])} seeds. The last column compares the order with the exam's "
        "mean cosine of single batches of the same size.\n\n" + "\n".join(lines)
    )


def _transformer_table(learning: list[dict[str, Any]], rows: list[dict[str, Any]]) -> str:
    """Return a table that compares the learning curves of a transformer on "guess" with the exam."""
    header, *runs = learning
    records = read_records(TRANSFORMER)
    forecast = _forecast(rows, "guess", header["batch_size"])
    exact = list(map(fmean, _shares(runs, "guess")))
    curves, after = (
        [[value(record) for record in records if record.name == name] for name in LEARNERS]
        for value in (lambda r: fmean(r.steps["gem/return"]), lambda r: r.after["gem/return"])
    )
    lines = [
        "| estimator | cosine of a batch | exact policy | mean return | final return |",
        "|---" * 5 + "|",
    ]
    lines += [
        f"| `{name}` | {forecast[i]:.3f} | {exact[i]:.3f} | {_interval(curves[i])} | {_interval(after[i])} |"
        for i, name in enumerate(LEARNERS)
    ]
    means = list(map(fmean, curves))
    return (
        "The tiny transformer plays the game of `guess` itself, GuessTheNumber from 1 to 7 in 3 turns, and "
        f"is trained by `gem-core train` with batches of {header['batch_size']} episodes "
        "([commands and curves](../estimators/summary.md)). Mean return: over the training episodes of all "
        f"steps; final return: on 128 evaluation seeds; mean and 95% interval over {len(curves[0])} seeds. "
        "Cosine of a batch: the exam's forecast. Exact policy: the share of the table above.\n\n"
        + "\n".join(lines)
        + f"\n\nRank correlation of the mean return with the forecast: {_spearman(forecast, means):.2f}; "
        f"with the learning curves of the exact policy: {_spearman(exact, means):.2f}."
    )


def _forecast(rows: list[dict[str, Any]], task: str, batch_size: int) -> list[float]:
    """Return the exam's mean cosine of single batches over the stages of learning, by learner."""
    chosen = [r for r in rows if r["task"] == task and r["batch_size"] == batch_size and r["batches"]]
    return [fmean(r["alignment"] for r in chosen if r["estimator"] == name) for name in LEARNERS]


def _shares(runs: list[dict[str, Any]], task: str) -> list[list[float]]:
    """Return the mean of each curve as a share of the gain of the late policy, by learner and seed."""
    by_name = {run["estimator"]: run for run in runs if run["task"] == task}
    return [
        [
            (value - by_name[name]["first"]) / (by_name[name]["best"] - by_name[name]["first"])
            for value in by_name[name]["mean_return"]
        ]
        for name in LEARNERS
    ]


def _interval(values: Sequence[float]) -> str:
    """Return the mean and the half-width of the 95% interval over five or ten seeds."""
    t = {5: 2.776, 10: 2.262}[len(values)]
    return f"{fmean(values):.3f} ± {t * stdev(values) / len(values) ** 0.5:.3f}"


def _spearman(x: Sequence[float], y: Sequence[float]) -> float:
    def ranks(values: Sequence[float]) -> list[float]:
        return [sum((other < value) + (other == value) / 2 for other in values) for value in values]

    return correlation(ranks(x), ranks(y))


def _series(rows: list[dict[str, Any]], x: str, y: str) -> dict[str, list[tuple[float, float]]]:
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row[y] is not None:
            series.setdefault(row["estimator"], []).append((row[x], row[y]))
    return series


def _learn(job: tuple[str, str, int]) -> list[float]:
    task, name, seed = job
    curve = learning_curve(get_task(task), Candidate.of(name), steps=STEPS, batch_size=BATCH, seed=seed)
    return [float(value) for value in curve]


def _ends(task: str) -> list[Any]:
    """Return the initial policy and one that has made 90% of the improvement of exact ascent."""
    return policies_at(get_task(task), ["initial", "late"])


def _origin() -> dict[str, str]:
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True, cwd=ROOT).strip()
    return {"command": f"python benchmarks/exam_study.py {' '.join(sys.argv[1:])}", "commit": commit}


def _short(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


if __name__ == "__main__":
    if sys.argv[1:2] == ["record"]:
        record(OUT, sys.argv[2:], os.cpu_count() or 1)
    elif sys.argv[1:] == ["learning"]:
        record_learning(OUT, os.cpu_count() or 1)
    elif sys.argv[1:] == ["draw"]:
        draw(OUT, OUT)
    else:
        sys.exit(__doc__)
