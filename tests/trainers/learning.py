"""Does a trainer learn a game with ReBN? One budget for all of them, and what a run leaves behind.

    gem-core tiny --env game:GuessTheNumber-v0-easy --seed 0 --out tiny
    python -m tests.trainers.<trainer>.learn --model tiny --out docs/results/<trainer>
    python -m tests.trainers.<trainer>.learn --model tiny --out docs/results/<trainer> --control
    python -m tests.trainers.learning docs/results/<trainer>

The first run trains with ReBN; the control differs in that its advantages are zero. Each leaves
``<variant>-<seed>.jsonl``, one line per step, and ``<variant>-<seed>.json``; the last command draws
``curves.png`` and writes ``summary.md`` from them. It takes minutes, and is no part of the tests.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from gem_core.files import write_atomically

VARIANTS = ("rebn", "control")
PANELS = (("gem/success", "success"), ("gem/return", "return"), ("gem/turns", "turns per episode"))
REQUIRED_GAIN = 0.2
"""By which success on the held-out seeds rises at least; that of the control by less than half of it."""


@dataclass(frozen=True)
class Budget:
    """What every trainer is given.

    Optimizer: AdamW without weight decay or warm-up, gradients cut to norm 1. No KL penalty. Other
    optimizer options are the trainer's defaults.

    Attributes:
        env: Environment, without wrappers.
        gamma: Discount per turn.
        steps: Training steps.
        prompts: Seeds per step.
        samples: Episodes per seed.
        updates: Of the optimizer per step, each on an equal share of the step's episodes.
        lr: Learning rate, constant.
        temperature: Of sampling, in training and on the held-out seeds.
        held_out: Held-out seeds that the first and the last weights play, once each.
    """

    env: str = "game:GuessTheNumber-v0-easy"
    gamma: float = 0.9
    steps: int = 60
    prompts: int = 64
    samples: int = 2
    updates: int = 4
    lr: float = 3e-3
    temperature: float = 1.0
    held_out: int = 500

    @property
    def episodes(self) -> int:
        """Per step."""
        return self.prompts * self.samples


BUDGET = Budget()
SEEDS = (0,)


def arguments(description: str) -> argparse.Namespace:
    """Of the command line of a trainer's ``learn`` module: model, out, seed, control."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="a folder that `gem-core tiny` made")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--seed", type=int, default=SEEDS[0])
    parser.add_argument("--control", action="store_true", help="zeroed advantages")
    return parser.parse_args()


def model_hash(folder: Path) -> str:
    """SHA-256 of the weights that a run starts from, in hex."""
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def write_run(
    given: argparse.Namespace,
    *,
    trainer: str,
    steps: Sequence[Mapping[str, float]],
    before: float,
    after: float,
) -> None:
    """Write what a run leaves.

    Args:
        given: What `arguments` read.
        trainer: Its name and version.
        steps: Metrics of each training step, in order.
        before: Success on the held-out seeds with the first weights.
        after: The same with the last ones.
    """
    assert len(steps) == BUDGET.steps
    variant = VARIANTS[given.control]
    stem = given.out / f"{variant}-{given.seed}"
    lines = (json.dumps({"step": number, **step}) + "\n" for number, step in enumerate(steps, 1))
    write_atomically(stem.with_suffix(".jsonl"), lines)
    module = sys.modules["__main__"].__spec__
    summary = {
        "trainer": trainer,
        "variant": variant,
        "seed": given.seed,
        "success_before": before,
        "success_after": after,
        "model_sha256": model_hash(given.model),
        "command": f"python -m {module.name if module else ''} {shlex.join(sys.argv[1:])}",
        "budget": asdict(BUDGET),
    }
    write_atomically(stem.with_suffix(".json"), [json.dumps(summary, indent=1) + "\n"])
    print(f"{stem.name}: success {before:.3f} -> {after:.3f}")


def write_results(folder: Path) -> bool:
    """Draw the curves of all runs in a folder, write their table; whether the trainer learned."""
    from gem_core.train.report import plot_variants

    runs: dict[str, list[dict[str, Any]]] = {variant: [] for variant in VARIANTS}
    histories: dict[str, list[list[dict[str, float]]]] = {variant: [] for variant in VARIANTS}
    for variant in VARIANTS:
        for path in sorted(folder.glob(f"{variant}-*.json")):
            runs[variant].append(json.loads(path.read_text()))
            lines = path.with_suffix(".jsonl").read_text().splitlines()
            histories[variant].append([json.loads(line) for line in lines])
    first = runs[VARIANTS[0]][0]
    title = f"{first['trainer']}: {BUDGET.env}, gamma {BUDGET.gamma:g}"
    plot_variants(title, PANELS, histories, folder / "curves.png")
    rows = [
        f"| {run['variant']} | {run['seed']} | {run['success_before']:.3f} → {run['success_after']:.3f} |"
        for variant in VARIANTS
        for run in runs[variant]
    ]
    commands = [run["command"] for variant in VARIANTS for run in runs[variant]]
    text = f"""# {title}

Success of the sampled policy on {BUDGET.held_out} held-out seeds, before and after {BUDGET.steps} steps of
{BUDGET.episodes} episodes. The control differs in that its advantages are zero.

| variant | seed | success |
|---|---|---|
{chr(10).join(rows)}

![learning curves](curves.png)

The commands:

```text
gem-core tiny --env {BUDGET.env} --seed 0 --out tiny
{chr(10).join(commands)}
```

SHA-256 of `tiny/model.safetensors`: `{first["model_sha256"]}`.
"""
    write_atomically(folder / "summary.md", [text])
    gains = {
        variant: fmean(run["success_after"] - run["success_before"] for run in runs[variant])
        for variant in VARIANTS
    }
    print(", ".join(f"{variant}: {gain:+.3f}" for variant, gain in gains.items()))
    return gains["rebn"] >= REQUIRED_GAIN and gains["control"] < REQUIRED_GAIN / 2


if __name__ == "__main__":
    sys.exit(not write_results(Path(sys.argv[1])))
