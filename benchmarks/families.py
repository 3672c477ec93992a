"""One learning run for each family of environments, from a tiny warm start.

    python benchmarks/families.py                 # all runs, one after the other
    python benchmarks/families.py --only math qa  # some

Each run is a `gem-core tiny` and a `gem-core train` command with one thread. An interrupted run continues
where it stopped. ``docs/results/families/runs.jsonl`` gets one `Record` per line. ``curves.png`` in the same
folder and ``docs/results/families.md`` are generated from it; ``--draw`` only generates these.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from records import OUTDATED, ROOT, Record, outdated, read_records, write_records
from study import gem_core

from gem_core._util.files import write_atomically
from gem_core.train.report import new_figure, save_figure


@dataclass(frozen=True)
class Run:
    """One family's run.

    Attributes:
        family: First part of the environment ids.
        env: Environment, including arguments.
        tiny: Options of `gem-core tiny`.
        train: Options of `gem-core train`.
        what: Description of the task, for the table.
    """

    family: str
    env: str
    tiny: str
    train: str
    what: str

    def commands(self, model: str, out: str | None) -> tuple[list[str], list[str]]:
        """Return the two commands."""
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
        "which of the names on a page answers the question",
    ),
    Run(
        "code",
        "code:SmallTasks-v0-easy(num_tests=2)",
        "--vocab-size 512 --warm-start-steps 300",
        "--steps 45 --episodes-per-step 160 --kl 0.1 --max-tokens-per-turn 48 --eval-episodes 500",
        "which program a sentence describes, and its number",
    ),
    Run(
        "logic",
        "logic:Proofs-v0-d0(distractors=False)",
        "--vocab-size 512 --warm-start-steps 300",
        "--steps 150 --episodes-per-step 384 --kl 0.1",
        "whether a statement or its negation is the fact",
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "families", help="folder of the runs")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "families")
    parser.add_argument("--only", nargs="+", choices=[run.family for run in RUNS])
    parser.add_argument("--draw", action="store_true", help="only draw the recorded runs")
    arguments = parser.parse_args()
    path = arguments.out / "runs.jsonl"
    records = {record.name: record for record in read_records(path)} if path.exists() else {}
    if not arguments.draw:
        for run in RUNS:
            if not arguments.only or run.family in arguments.only:
                records[run.family] = execute(run, arguments.runs)
        arguments.out.mkdir(parents=True, exist_ok=True)
        write_records(path, [records[run.family] for run in RUNS if run.family in records])
    draw(records, arguments.out)


def execute(run: Run, folder: Path) -> Record:
    """Make the model and train it, unless already done, and return the record."""
    model, out = folder / f"tiny-{run.family}", folder / run.family
    tiny, train = run.commands(str(model), str(out))
    if not (model / "gem_tiny.json").exists():
        gem_core(tiny, model.with_suffix(".log"))
    path = out / "evaluation.json"
    if not path.exists() or "after" not in json.loads(path.read_text(encoding="utf-8")):
        gem_core(train, out.with_suffix(".log"))
    command = f"gem-core {shlex.join(run.commands('./tiny', None)[1])}"
    record = Record.of_run(
        run.family, 0, command, out, table=("gem/success", "gem/return"), figure=("gem/success",)
    )
    print(f"{run.family}: evaluation success {record.change('gem/success')}")
    return record


def draw(records: Mapping[str, Record], out: Path) -> None:
    """Draw the figure and write the page."""
    runs = [run for run in RUNS if run.family in records]
    figure, axes = new_figure(max(1, len(runs)))
    rows, commands = [], []
    for run, axis in zip(runs, axes, strict=False):
        record = records[run.family]
        curve = record.curve("gem/success")
        axis.plot(range(1, len(curve) + 1), curve, color="#1b7f5c")
        axis.axhline(record.before["gem/success"], color="#888888", linestyle="--", linewidth=0.8)
        axis.set(title=run.family, ylim=(0, 1))
        changes = " | ".join(record.change(metric) for metric in ("gem/success", "gem/return"))
        rows.append(f"| {run.family} | `{run.env}` | {run.what} | {changes} | {len(curve)} |")
        commands += [f"gem-core {shlex.join(command)}" for command in run.commands("./tiny", None)]
    axes[0].set_ylabel("success of the sampled policy")
    save_figure(figure, out / "curves.png")
    head = [
        "# A learning run for each family",
        "",
        "Success of the sampled policy on 1,000 evaluation seeds (500 for code), before and after training",
        "with ReBN. Each model is tiny, is created for its run, and starts from random legal play only. The",
        "games have three seeds and a control: see [the study](normalization/summary.md).",
        "",
        "Evaluation seeds give other episodes than training seeds. If a family has few items (100 sums of",
        "two digits, about 60 short programs, about 35,000 texts of one fact and one statement), training",
        "has covered most or all of them. The model may then have memorized the items, and the result says",
        "nothing about new ones. Questions have far more items than a run plays.",
        "",
        "| family | environment | task to learn | success | return | steps |",
        "|---|---|---|---|---|---|",
    ]
    missing = [run.family for run in RUNS if run not in runs]
    if missing:
        rows += ["", f"Not recorded yet: {', '.join(missing)}."]
    if outdated(records.values()):
        rows += ["", *OUTDATED]
    tail = [
        "",
        f"![learning curves]({out.name}/curves.png)",
        "",
        "The commands:",
        "",
        "```text",
        *commands,
        "```",
        "",
    ]
    write_atomically(out.with_suffix(".md"), ["\n".join([*head, *rows, *tail])])


if __name__ == "__main__":
    main()
