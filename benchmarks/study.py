"""Learning studies: several seeds of several variants of one training run, and a figure of them.

    python benchmarks/study.py normalisation    # ReBN, plain REINFORCE, a zero-advantage control
    python benchmarks/study.py gamma            # gamma 0.9 against 0.999
    python benchmarks/study.py tools            # ReBN and plain REINFORCE where a tool has to be called

Each run is a `gem-core train` command of its own, two at a time with one thread each. A study that was
interrupted goes on where it was. It leaves in docs/results/<study>: ``curves.png``, ``summary.md`` with
the commands, and the metrics of each run, one JSON line a step.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from gem_core._util.files import write_atomically
from gem_core.train.report import plot_variants

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Study:
    """What is compared.

    Attributes:
        title: Title of the figure.
        env: The environment, arguments included.
        options: Options of `gem-core train` that all runs share.
        variants: Name to the options that make it.
        panels: Metrics that are drawn, with their captions.
    """

    title: str
    env: str
    options: str
    variants: Mapping[str, str]
    panels: Sequence[tuple[str, str]]


STUDIES = {
    "normalisation": Study(
        title="game:GuessTheNumber-v0-easy, gamma 0.9, three seeds",
        env="game:GuessTheNumber-v0-easy",
        options="--gamma 0.9 --lr 0.003",
        variants={
            "ReBN": "--algorithm rebn",
            "REINFORCE": "--algorithm reinforce",
            "control": "--algorithm rebn --zero-advantages",
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
        variants={"ReBN": "--algorithm rebn", "REINFORCE": "--algorithm reinforce"},
        panels=(("gem/success", "success"), ("gem/tool_calls", "tool calls"), ("gem/return", "return")),
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
        """Whether the evaluation after training is there."""
        return "after" in self.evaluation()

    def evaluation(self) -> dict[str, Any]:
        path = self.folder / "evaluation.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def metrics(self) -> list[dict[str, float]]:
        lines = (self.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", choices=sorted(STUDIES))
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", help="folder of the training runs")
    parser.add_argument("--out", type=Path, help="folder of the results (default docs/results/<study>)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--train", default="", metavar="OPTIONS", help="more options of `gem-core train`")
    arguments = parser.parse_args()
    study = STUDIES[arguments.study]
    folder = arguments.runs / arguments.study
    out = arguments.out or ROOT / "docs" / "results" / arguments.study
    print(f"{len(study.variants) * len(arguments.seeds)} runs in {folder}, {arguments.jobs} at a time")
    runs = plan(study, folder, arguments.seeds, arguments.train)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(lambda seed: make_model(study, folder, seed), arguments.seeds))
        list(pool.map(execute, runs))
    write_results(study, runs, out)
    print((out / "summary.md").read_text(encoding="utf-8"))
    return 0


def plan(study: Study, folder: Path, seeds: Sequence[int], more: str) -> list[Run]:
    """The runs; those of a seed start from the same model."""
    runs = []
    for seed in seeds:
        for variant, options in study.variants.items():
            out = folder / f"{variant.replace(' ', '-')}-{seed}"
            command = ["train", "--model", str(model_folder(folder, seed)), "--env", study.env]
            command += [*shlex.split(study.options), *shlex.split(options), *shlex.split(more)]
            command += ["--seed", str(seed), "--threads", "1", "--out", str(out)]
            runs.append(Run(variant, seed, out, command))
    return runs


def model_folder(folder: Path, seed: int) -> Path:
    return folder / f"tiny-{seed}"


def make_model(study: Study, folder: Path, seed: int) -> None:
    out = model_folder(folder, seed)
    if not (out / "gem_tiny.json").exists():
        gem_core(
            ["tiny", "--env", study.env, "--seed", str(seed), "--out", str(out)], folder / f"tiny-{seed}.log"
        )


def execute(run: Run) -> None:
    if not run.finished():
        gem_core(run.command, run.folder.with_name(f"{run.folder.name}.log"))
    (after,) = run.evaluation()["after"].values()
    print(f"{run.variant}, seed {run.seed}: evaluation success {after['gem/success']:.3f}", flush=True)


def gem_core(command: Sequence[str], log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file:
        done = subprocess.run(
            [sys.executable, "-m", "gem_core", *command],
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"gem-core {shlex.join(command)} failed; see {log}")


def write_results(study: Study, runs: Sequence[Run], out: Path) -> None:
    """Copy the metrics, draw the figure, write the table."""
    out.mkdir(parents=True, exist_ok=True)
    for run in runs:
        shutil.copyfile(run.folder / "metrics.jsonl", out / f"{run.folder.name}.jsonl")
    histories = {
        variant: [run.metrics() for run in runs if run.variant == variant] for variant in study.variants
    }
    plot_variants(study.title, study.panels, histories, out / "curves.png")
    names = [name for name, _ in study.panels if name.startswith("gem/")]
    lines = [
        f"# {study.title}",
        "",
        "Sampled policy on 1,000 evaluation seeds, before and after training. The runs of a seed start from",
        "the same model and differ in the named options only.",
        "",
    ]
    lines += ["| variant | seed | " + " | ".join(name.removeprefix("gem/") for name in names) + " |"]
    lines += ["|---" * (2 + len(names)) + "|"]
    for variant in study.variants:
        mine = [run for run in runs if run.variant == variant]
        rows = [(str(run.seed), change(run, names)) for run in mine]
        rows.append(
            (
                "mean",
                [
                    tuple(fmean(pair) for pair in zip(*column, strict=True))
                    for column in zip(*(cells for _, cells in rows), strict=True)
                ],
            )
        )
        for seed, cells in rows:
            figures = " | ".join(f"{before:.3f} → {after:.3f}" for before, after in cells)
            lines.append(f"| {variant} | {seed} | {figures} |")
    lines += ["", "![learning curves](curves.png)", "", "The commands:", "", "```text"]
    lines += [f"gem-core {shlex.join(['tiny', '--env', study.env, '--seed', 'SEED', '--out', './tiny'])}"]
    for options in study.variants.values():
        lines.append(
            f"gem-core train --model ./tiny --env {shlex.quote(study.env)} {study.options} {options} "
            "--seed SEED --threads 1"
        )
    lines += ["```", ""]
    write_atomically(out / "summary.md", ["\n".join(lines)])


def change(run: Run, names: Sequence[str]) -> list[tuple[float, ...]]:
    """Before and after, per metric."""
    evaluation = run.evaluation()
    before, after = (next(iter(evaluation[when].values())) for when in ("before", "after"))
    return [(before[name], after[name]) for name in names]


if __name__ == "__main__":
    sys.exit(main())
