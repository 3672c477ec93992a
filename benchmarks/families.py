"""One learning run for each family of environments, from a tiny warm start.

    python benchmarks/families.py                 # all of them, one after the other
    python benchmarks/families.py --only math qa  # some

Each is a `gem-core tiny` and a `gem-core train` with one thread. A run that was interrupted goes on where
it was. Leaves docs/results/families.md with the commands and, in the folder beside it, ``curves.png`` and the
metrics of each run, one JSON line a step.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from study import ROOT, gem_core

from gem_core._util.files import write_atomically
from gem_core.train.report import new_figure, smooth


@dataclass(frozen=True)
class Run:
    """One family's run.

    Attributes:
        family: The first part of its ids.
        env: What is learned, arguments included.
        tiny: Options of `gem-core tiny`.
        train: Options of `gem-core train`.
        what: What has to be learned, for the table.
    """

    family: str
    env: str
    tiny: str
    train: str
    what: str

    def commands(self, model: str, out: str | None) -> tuple[list[str], list[str]]:
        """The two commands."""
        tiny = ["tiny", "--env", self.env, *shlex.split(self.tiny), "--out", model]
        train = ["train", "--model", model, "--env", self.env, "--gamma", "0.9", "--lr", "0.003"]
        train += [*shlex.split(self.train), "--threads", "1"]
        return tiny, [*train, "--out", out] if out else train


_ONE_DIGIT = '{"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}'
RUNS = (
    Run(
        "math",
        "math:Arithmetic-v0-easy",
        "--vocab-size 512",
        "--steps 150 --kl 0.1",
        "sums of two digits, in twelve wordings",
    ),
    Run(
        "rg",
        f"rg:chain_sum(config={_ONE_DIGIT}, size=None)",
        "--vocab-size 512 --warm-start-steps 300",
        "--steps 80 --episodes-per-step 256 --kl 0.1",
        "sums and differences of two digits",
    ),
    Run(
        "qa",
        "qa:MultiHop-v0-easy(documents=1)",
        "--vocab-size 1024 --warm-start-steps 300",
        "--steps 60 --episodes-per-step 256 --kl 0.1",
        "which of the names on a page is asked for",
    ),
    Run(
        "code",
        "code:SmallTasks-v0-easy(num_tests=2)",
        "--vocab-size 512 --warm-start-steps 300",
        "--steps 45 --episodes-per-step 160 --kl 0.1 --max-tokens-per-turn 48 --eval-episodes 500",
        "which program a sentence asks for, and its number",
    ),
    Run(
        "logic",
        "logic:Proofs-v0-d0(distractors=False)",
        "--vocab-size 512 --warm-start-steps 300",
        "--steps 150 --episodes-per-step 384 --kl 0.1",
        "whether a statement, or what it denies, is the fact",
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "families", help="folder of the runs")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "families")
    parser.add_argument("--only", nargs="+", choices=[run.family for run in RUNS])
    arguments = parser.parse_args()
    for run in RUNS:
        if not arguments.only or run.family in arguments.only:
            execute(run, arguments.runs)
    write_results([run for run in RUNS if "after" in evaluation(run, arguments.runs)], arguments)


def execute(run: Run, folder: Path) -> None:
    """Make the model and train it, as far as that is not done."""
    model, out = folder / f"tiny-{run.family}", folder / run.family
    tiny, train = run.commands(str(model), str(out))
    if not (model / "gem_tiny.json").exists():
        gem_core(tiny, model.with_suffix(".log"))
    if "after" not in evaluation(run, folder):
        gem_core(train, out.with_suffix(".log"))
    before, after = figures(run, folder)
    print(f"{run.family}: evaluation success {before['gem/success']:.3f} -> {after['gem/success']:.3f}")


def evaluation(run: Run, folder: Path) -> dict[str, Any]:
    path = folder / run.family / "evaluation.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def figures(run: Run, folder: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Metrics of the evaluation episodes before and after."""
    found = evaluation(run, folder)
    (before,), (after,) = found["before"].values(), found["after"].values()
    return before, after


def write_results(runs: list[Run], arguments: argparse.Namespace) -> None:
    """Copy the metrics, draw the figure, write the page."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    figure, axes = new_figure(max(1, len(runs)))
    rows, commands = [], []
    for run, axis in zip(runs, axes, strict=False):
        source = arguments.runs / run.family / "metrics.jsonl"
        shutil.copyfile(source, arguments.out / f"{run.family}.jsonl")
        history = [json.loads(line) for line in source.read_text(encoding="utf-8").splitlines()]
        before, after = figures(run, arguments.runs)
        success = [step["gem/success"] for step in history]
        axis.plot([step["step"] for step in history], smooth(success, 5), color="#1b7f5c")
        axis.axhline(before["gem/success"], color="#888888", linestyle="--", linewidth=0.8)
        axis.set(title=run.family, ylim=(0, 1))
        changes = " | ".join(f"{before[k]:.3f} → {after[k]:.3f}" for k in ("gem/success", "gem/return"))
        facts = f"`{run.env}` | {run.what} | {changes} | {len(history)}"
        rows.append(f"| {run.family} | {facts} |")
        commands += [f"gem-core {shlex.join(command)}" for command in run.commands("./tiny", None)]
    axes[0].set_ylabel("success of the sampled policy")
    figure.savefig(arguments.out / "curves.png")
    head = [
        "# A learning run for each family",
        "",
        "Sampled policy on 1,000 evaluation seeds (500 for code), before and after training with ReBN. Each",
        "model is tiny, made on the spot and has seen random legal play only. The games have three seeds and",
        "a control of their own: [the study](normalisation/summary.md).",
        "",
        "Evaluation seeds give other episodes than training seeds. Where a family has few items (two digits",
        "have 100 sums, the short programs some 60 tasks, one fact and one statement some 35,000 texts),",
        "training has met the items themselves, or most of them: there the model may learn a table, and",
        "nothing is said about items that it never saw. Questions have far more items than a run plays.",
        "",
        "| family | environment | what is to be learned | success | return | steps |",
        "|---|---|---|---|---|---|",
    ]
    missing = [run.family for run in RUNS if run not in runs]
    if missing:
        rows += ["", f"Not recorded yet: {', '.join(missing)}."]
    tail = [
        "",
        f"![learning curves]({arguments.out.name}/curves.png)",
        "",
        "The commands:",
        "",
        "```text",
        *commands,
        "```",
        "",
    ]
    write_atomically(arguments.out.with_suffix(".md"), ["\n".join([*head, *rows, *tail])])


if __name__ == "__main__":
    main()
