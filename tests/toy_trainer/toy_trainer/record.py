"""`gem-core consistency --run` with the stub: artificial episodes and runs, advantages from gem_core."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import gem_core
from gem_core.advantages import rebn
from gem_lab.consistency import Played, Record
from gem_lab.consistency._learning import LearningRun

REWARDS = [[0.0, 1.0], [0.5, 0.25]]


def record_step(folder: Path) -> None:
    """Write the records of gem_core and of the stub, whose gradient claims to be off by 2e-7."""
    advantages = rebn(REWARDS, gamma=0.9)
    episodes = [
        Played(
            "game:GuessTheNumber-v0-easy", seed, True, [5, 6, 7], [0, -1, 1], rewards, True, False,
            "terminated", [float(value) for value in values],
        )
        for seed, (rewards, values) in enumerate(zip(REWARDS, advantages, strict=True))
    ]  # fmt: skip
    core = Record("core", {"gem-core": gem_core.__version__}, "rebn", "no model", episodes)
    core.write(folder / "core.json")
    toy = replace(core, trainer="toy", versions={"toy-trainer": "1.2"}, gradient=2e-7)
    toy.write(folder / "toy.json")


def record_learning(path: Path) -> None:
    """Write five runs of the reference trainer and five of the stub, with artificial results."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        for trainer, after in (("reference", 0.6), ("toy", 0.62)):
            for seed in range(5):
                run = LearningRun(
                    task="game", trainer=trainer, version=f"{trainer} 1.2", variant="rebn", seed=seed,
                    before=0.3, after=after, model="none", budget={}, command="none", commit="none",
                    success=[0.3, after],
                )  # fmt: skip
                file.write(json.dumps(asdict(run)) + "\n")
