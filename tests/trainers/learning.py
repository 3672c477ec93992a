"""Do the trainers learn alike with ReBN? One budget for all of them, and what a run leaves behind.

    python -m tests.trainers.verl.learn                       # learns the game with seed 0
    python -m tests.trainers.verl.learn --control             # the same with advantages of zero
    python -m tests.trainers.verl.learn --on letters --seed 3
    python -m tests.trainers.learning --trainer verl          # whatever is missing of one trainer's runs
    gem-core consistency --level 4 --records docs/results/learning/runs.jsonl  # compare all runs

Each run starts from a model in ``tests/trainers/tiny`` and appends one line, a `LearningRun`, to
``docs/results/learning/runs.jsonl``. A run takes minutes and is not part of the tests.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gem_core.consistency.learning import REFERENCE, LearningRun, read_runs

MODELS = Path("tests/trainers/tiny")
"""Folder of the first weights, one a budget; kept, since another CPU rounds otherwise and makes others."""
RESULTS = Path("docs/results/learning/runs.jsonl")
SEEDS = (0, 1, 2, 3, 4)
TRAINERS = (REFERENCE, "verl", "openrlhf", "oat", "rl2", "roll")


@dataclass(frozen=True)
class Budget:
    """What every trainer is given.

    Optimizer: AdamW with betas 0.9 and 0.999, without weight decay or warm-up, gradients cut to norm 1. PPO's
    clip is 0.2. No penalty, no bonus, no correction of log-probs.

    Attributes:
        env: Environment, without wrappers.
        tiny: Options of `gem-core tiny` besides the environment that made the first weights.
        steps: Training steps.
        lr: Learning rate, constant.
        gamma: Discount per turn.
        turns: Of an average episode; for Oat, whose batch is a number of turns.
        prompts: Seeds per step.
        samples: Episodes per seed.
        updates: Of the optimizer per step, each on an equal share of the step's episodes.
        temperature: Sampling temperature, in training and in evaluation.
        turn_tokens: Most tokens of a response.
        max_tokens: Most tokens of an episode.
        eval_episodes: Evaluation tasks that the first and the last weights play, once each.
    """

    env: str
    tiny: str
    steps: int
    lr: float
    gamma: float
    turns: int
    prompts: int = 256
    samples: int = 2
    updates: int = 4
    temperature: float = 1.0
    turn_tokens: int = 24
    max_tokens: int = 512
    eval_episodes: int = 1000

    @property
    def episodes(self) -> int:
        """Per step."""
        return self.prompts * self.samples


GAME = Budget("game:GuessTheNumber-v0-easy", "--seed 0", steps=15, lr=1.5e-3, gamma=0.0, turns=3)
LETTERS = Budget("rg:letter_counting", "--vocab-size 512 --seed 0", steps=10, lr=5e-4, gamma=0.9, turns=1)
GAME_128 = replace(GAME, steps=40, lr=2e-3, prompts=64)
BUDGETS = {
    "game": GAME,
    "letters": LETTERS,
    "game-gamma-0.9": replace(GAME, gamma=0.9),
    "game-128": replace(GAME_128, gamma=0.9),
    "game-128-gamma-0": GAME_128,
    "letters-128": replace(LETTERS, steps=20, prompts=64),
}
"""By name, which begins with that of the folder of first weights.

Sizes and rates were chosen with the reference trainer on seeds from 101 on. On those of `SEEDS` its results
have a standard deviation of 0.025 in the game, 0.022 with letters, and 0.049 at a discount of 0.9. At a
discount of zero a trainer that discounts per token rewards the last token of a turn alone, and learns
nothing; at 0.9 it learns as well as others, so that success cannot tell.
"""
EARLIER = ("game-128", "game-128-gamma-0", "letters-128")
"""Given up, since seeds differ by up to the margin with 128 episodes per step; see ``earlier.jsonl``."""
REFERENCE_ONLY = ("game-gamma-0.9",)
"""Played by the reference trainer on all seeds, to see what the comparison finds there."""


@dataclass(frozen=True)
class Given:
    """What a trainer's ``learn`` module is told.

    Attributes:
        name: Of the budget.
        variant: "rebn"; "control", whose advantages are zero; the reference trainer also has "per-token",
            which discounts per token.
        seed: Of the tasks and of the trainer.
        out: JSON Lines file of the runs.
    """

    name: str
    variant: str
    seed: int
    out: Path

    @property
    def budget(self) -> Budget:
        return BUDGETS[self.name]

    @property
    def model(self) -> Path:
        """Folder of the weights that the run starts from."""
        return MODELS / self.name.partition("-")[0]

    @property
    def control(self) -> bool:
        return self.variant == "control"


def arguments(description: str, *more_variants: str) -> Given:
    """Read the command line of a trainer's ``learn`` module.

    Args:
        description: Its docstring.
        more_variants: Flags beside ``--control``.
    """
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--on", choices=sorted(BUDGETS), default="game", dest="name", help="the budget")
    parser.add_argument("--seed", type=int, default=SEEDS[0])
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON Lines file of the runs")
    for variant in ("control", *more_variants):
        parser.add_argument(
            f"--{variant}", action="store_const", dest="variant", const=variant, default="rebn"
        )
    return Given(**vars(parser.parse_args()))


def write_run(
    given: Given,
    *,
    trainer: str,
    version: str,
    steps: Sequence[Mapping[str, float]],
    before: float,
    after: float,
) -> None:
    """Append a run to its file.

    Args:
        given: What `arguments` read.
        trainer: One of `TRAINERS`.
        version: Name and version of the trainer.
        steps: Metrics of each training step, in order.
        before: Success on the evaluation tasks with the first weights.
        after: The same with the last weights.
    """
    assert len(steps) == given.budget.steps, f"{len(steps)} steps, expected {given.budget.steps}"
    module = sys.modules["__main__"].__spec__
    run = LearningRun(
        task=given.name,
        trainer=trainer,
        version=version,
        variant=given.variant,
        seed=given.seed,
        before=before,
        after=after,
        model=model_hash(given.model),
        budget=asdict(given.budget),
        command=shlex.join(["python", "-m", module.name if module else "", *sys.argv[1:]]),
        commit=subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True).strip(),
        success=[step["gem/success"] for step in steps],
    )
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with given.out.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(run)) + "\n")
    print(f"{trainer}, {given.name}, {given.variant}, seed {given.seed}: success {before:.3f} -> {after:.3f}")


def model_hash(folder: Path) -> str:
    """SHA-256 of the weights that a run starts from, in hex."""
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def planned(trainer: str) -> list[tuple[str, str, int]]:
    """Budget, variant and seed of each run of a trainer.

    All seeds with ReBN, one control of the game; the reference trainer's fault on all seeds, too.
    """
    names = [name for name in BUDGETS if name not in EARLIER]
    if trainer != REFERENCE:
        names = [name for name in names if name not in REFERENCE_ONLY]
    runs = [(name, "rebn", seed) for name in names for seed in SEEDS] + [("game", "control", SEEDS[0])]
    if trainer == REFERENCE:
        runs += [(name, "per-token", seed) for name in names for seed in SEEDS]
    return runs


def main() -> int:
    """Make the missing runs of a trainer, one after the other."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--trainer", choices=TRAINERS, required=True)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    recorded = {
        (run.task, run.variant, run.seed) for run in read_runs(given.out) if run.trainer == given.trainer
    }
    for name, variant, seed in planned(given.trainer):
        if (name, variant, seed) in recorded:
            continue
        command: list[Any] = [sys.executable, "-m", f"tests.trainers.{given.trainer}.learn"]
        command += ["--on", name, "--seed", seed, "--out", given.out]
        command += [] if variant == "rebn" else [f"--{variant}"]
        done = subprocess.run([str(word) for word in command], check=False)
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
