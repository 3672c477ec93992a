"""Learning studies: several seeds of several variants of one training run, and a figure of them.

    python benchmarks/study.py normalization    # ReBN, plain REINFORCE, a zero-advantage control
    python benchmarks/study.py gamma            # gamma 0.9 versus 0.999
    python benchmarks/study.py tools            # ReBN and plain REINFORCE on a task that requires a tool
    python benchmarks/study.py estimators       # six estimators on the game of the estimator exam

Each run is one `gem-core train` command; two run at a time, with one thread each. An interrupted
study continues where it stopped. It writes ``runs.jsonl``, with one `Record` per line, to
docs/results/<study>, and generates ``curves.png`` and ``summary.md`` from it; ``--draw`` skips the runs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from records import OUTDATED, ROOT, Record, outdated, plot_variants, read_records, write_records

from gem_core._util.files import write_atomically


@dataclass(frozen=True)
class Study:
    """A comparison of variants of one run.

    Attributes:
        title: Title of the figure.
        env: Environment, including arguments.
        options: Options of `gem-core train` shared by all runs.
        variants: Maps the name of each variant to its options.
        panels: Metrics of the figure, with their captions.
        tiny: Options of `gem-core tiny`.
        one_model: Whether all runs start from the model of seed 0, instead of from the model of their seed.
    """

    title: str
    env: str
    options: str
    variants: Mapping[str, str]
    panels: Sequence[tuple[str, str]]
    tiny: str = ""
    one_model: bool = False

    @property
    def table(self) -> list[str]:
        """Evaluation metrics in the table."""
        return [metric for metric, _ in self.panels if metric.startswith("gem/")]


ESTIMATORS = ("reinforce", "rebn", "grpo", "rloo", "mt_grpo", "gigpo")
"""Estimators whose learning curves are compared with the estimator exam."""

STUDIES = {
    "normalization": Study(
        title="game:GuessTheNumber-v0-easy, gamma 0.9, three seeds",
        env="game:GuessTheNumber-v0-easy",
        options="--gamma 0.9 --lr 0.003",
        variants={
            "ReBN": "--estimator rebn",
            "REINFORCE": "--estimator reinforce",
            "control": "--estimator rebn --zero-advantages",
        },
        panels=(("gem/success", "success"), ("gem/return", "return"), ("train/entropy", "entropy per token")),
    ),
    "gamma": Study(
        title="game:GuessTheNumber-v0 from 1 to 50 in 15 turns, ReBN, three seeds",
        env="game:GuessTheNumber-v0(max_number=50, max_turns=15)",
        options="--steps 100 --lr 0.003 --lr-schedule constant --kl 0.1",
        variants={"gamma 0.9": "--gamma 0.9", "gamma 0.999": "--gamma 0.999"},
        panels=(
            ("gem/success", "success"),
            ("gem/turns", "turns per episode"),
            ("gem/turns_to_success", "turns of the solved episodes"),
        ),
    ),
    "tools": Study(
        title="math:FileArithmetic-v0-python, remainders of 3, gamma 0.9, three seeds",
        env="math:FileArithmetic-v0-python(modulus=3)",
        options="--gamma 0.9 --lr 0.003",
        variants={"ReBN": "--estimator rebn", "REINFORCE": "--estimator reinforce"},
        panels=(("gem/success", "success"), ("gem/tool_calls", "tool calls"), ("gem/return", "return")),
    ),
    "estimators": Study(
        title="GuessTheNumber from 1 to 7 in 3 turns, six estimators",
        env="game:GuessTheNumber-v0(max_number=7, max_turns=3)",
        # Without regularizer and clipping, and with one update per step, the scale of an estimator has no
        # effect, as in the exam.
        options="--steps 60 --eval-episodes 128 --episodes-per-step 64 --group-size 8 --minibatches 1 --kl 0 "
        "--max-grad-norm 1000 --lr 0.003 --lr-schedule constant",
        variants={name: f"--estimator {name}" for name in ESTIMATORS},
        panels=(("gem/return", "return"), ("gem/success", "success"), ("train/entropy", "entropy per token")),
        tiny="--warm-start-steps 200",
        one_model=True,
    ),
}


@dataclass(frozen=True)
class Run:
    """One run of a study."""

    variant: str
    seed: int
    folder: Path
    command: list[str]

    def finished(self) -> bool:
        """Return whether the evaluation after training exists."""
        return "after" in self.evaluation()

    def evaluation(self) -> dict[str, Any]:
        path = self.folder / "evaluation.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def record(self, study: Study) -> Record:
        """Return the record of the run."""
        command = list(self.command[: self.command.index("--out")])
        command[command.index("--model") + 1] = "./tiny"
        return Record.of_run(
            self.variant,
            self.seed,
            f"gem-core {shlex.join(command)}",
            self.folder,
            table=study.table,
            figure=[metric for metric, _ in study.panels],
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", choices=sorted(STUDIES))
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", help="folder of the training runs")
    parser.add_argument("--out", type=Path, help="folder of the results (default docs/results/<study>)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--train", default="", metavar="OPTIONS", help="more options of `gem-core train`")
    parser.add_argument("--draw", action="store_true", help="only draw the recorded runs")
    arguments = parser.parse_args()
    study = STUDIES[arguments.study]
    folder = arguments.runs / arguments.study
    out = arguments.out or ROOT / "docs" / "results" / arguments.study
    if not arguments.draw:
        run_study(study, folder, out, arguments)
    draw(study, read_records(out / "runs.jsonl"), out)
    print((out / "summary.md").read_text(encoding="utf-8"))
    return 0


def run_study(study: Study, folder: Path, out: Path, arguments: argparse.Namespace) -> None:
    """Execute the missing runs, and record all runs."""
    print(f"{len(study.variants) * len(arguments.seeds)} runs in {folder}, {arguments.jobs} at a time")
    runs = plan(study, folder, arguments.seeds, arguments.train)
    os.environ["OMP_NUM_THREADS"] = "1"  # for the workers
    seeds = [0] if study.one_model else arguments.seeds
    with ProcessPoolExecutor(arguments.jobs, get_context("spawn")) as pool:
        list(pool.map(partial(make_model, study, folder), seeds))
        list(pool.map(execute, runs))
    out.mkdir(parents=True, exist_ok=True)
    write_records(out / "runs.jsonl", [run.record(study) for run in runs])


def plan(study: Study, folder: Path, seeds: Sequence[int], more: str) -> list[Run]:
    """Return the runs; those with the same seed start from the same model."""
    runs = []
    for seed in seeds:
        for variant, options in study.variants.items():
            out = folder / f"{variant.replace(' ', '-')}-{seed}"
            command = ["train", "--model", str(model_folder(folder, 0 if study.one_model else seed))]
            command += ["--env", study.env]
            command += [*shlex.split(study.options), *shlex.split(options), *shlex.split(more)]
            command += ["--seed", str(seed), "--threads", "1", "--out", str(out)]
            runs.append(Run(variant, seed, out, command))
    return runs


def model_folder(folder: Path, seed: int) -> Path:
    return folder / f"tiny-{seed}"


def make_model(study: Study, folder: Path, seed: int) -> None:
    out = model_folder(folder, seed)
    if not (out / "gem_tiny.json").exists():
        options = [*shlex.split(study.tiny), "--seed", str(seed), "--out", str(out)]
        gem_core(["tiny", "--env", study.env, *options], folder / f"tiny-{seed}.log")


def execute(run: Run) -> None:
    if not run.finished():
        gem_core(run.command, run.folder.with_name(f"{run.folder.name}.log"))
    (after,) = run.evaluation()["after"].values()
    print(f"{run.variant}, seed {run.seed}: evaluation success {after['gem/success']:.3f}", flush=True)


def gem_core(command: Sequence[str], log: Path) -> None:
    """Run a command in this process; packages are then imported once for all runs of a worker."""
    from gem_core.cli import main

    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("a", encoding="utf-8") as file,
        contextlib.redirect_stdout(file),
        contextlib.redirect_stderr(file),
    ):
        code = main(list(command))
    if code:
        raise SystemExit(f"gem-core {shlex.join(command)} failed; see {log}")


_MODEL_PER_SEED = (
    "Sampled policy on 1,000 evaluation seeds, before and after training. Runs with the same seed start",
    "from the same model and differ only in the listed options; ± is the standard deviation over seeds.",
)
_ONE_MODEL = (
    "Sampled policy on evaluation seeds, before and after training. All runs start from the same model, and",
    "runs with the same seed differ only in the listed options; ± is the standard deviation over seeds.",
)


def draw(study: Study, records: Sequence[Record], out: Path) -> None:
    """Draw the figure and write the table."""
    variants = {
        variant: [record for record in records if record.name == variant] for variant in study.variants
    }
    plot_variants(study.title, study.panels, variants, out / "curves.png")
    lines = [
        f"# {study.title}",
        "",
        *(_ONE_MODEL if study.one_model else _MODEL_PER_SEED),
        "[runs.jsonl](runs.jsonl) has the command, the commit, and the curves of each run.",
        "",
        "| variant | seed | " + " | ".join(metric.removeprefix("gem/") for metric in study.table) + " |",
        "|---" * (2 + len(study.table)) + "|",
    ]
    for variant, mine in variants.items():
        for record in mine:
            changes = " | ".join(record.change(metric) for metric in study.table)
            lines.append(f"| {variant} | {record.seed} | {changes} |")
        means = " | ".join(mean_change(mine, metric) for metric in study.table)
        lines.append(f"| {variant} | mean | {means} |")
    if outdated(records):
        lines += ["", *OUTDATED]
    lines += ["", "![learning curves](curves.png)", "", "The commands:", "", "```text"]
    seed = "0" if study.one_model else "SEED"
    tiny = ["tiny", "--env", study.env, *shlex.split(study.tiny), "--seed", seed, "--out", "./tiny"]
    lines += [f"gem-core {shlex.join(tiny)}"]
    for options in study.variants.values():
        lines.append(
            f"gem-core train --model ./tiny --env {shlex.quote(study.env)} {study.options} {options} "
            "--seed SEED --threads 1"
        )
    lines += ["```", ""]
    write_atomically(out / "summary.md", ["\n".join(lines)])


def mean_change(records: Sequence[Record], metric: str) -> str:
    """Return the mean of a metric before and after training, for the table."""
    before = [record.before[metric] for record in records]
    after = [record.after[metric] for record in records]
    spread = f" ± {stdev(after):.3f}" if len(after) > 1 else ""
    return f"{fmean(before):.3f} → {fmean(after):.3f}{spread}"


if __name__ == "__main__":
    sys.exit(main())
