"""Helpers shared by the tests of the trainer: an easy game, a failing variant of it, and small options."""

from __future__ import annotations

import json
import math
import signal
from pathlib import Path
from typing import Any

import gem_core
from gem_envs._games.guess_the_number import GuessTheNumber

EASY = "game:GuessTheNumber-v0(min_number=1, max_number=3, max_turns=2)"
"""A game that the tiny model of the tests knows: random play earns about 0.6."""
LONG = "game:GuessTheNumber-v0(min_number=1, max_number=8, max_turns=5)"
"""The same game with a larger range and more turns."""


class Faulty(GuessTheNumber):
    """The easy game that fails on some seeds, or after some episodes of all instances."""

    played = 0
    interrupted = False
    steps_after_interrupt = 0
    made: list[Faulty] = []  # noqa: RUF012

    def __init__(self, nan_every: int = 0, nan_after: int = 0, interrupt_after: int = 0) -> None:
        super().__init__(1, 3, 2)
        self.nan_every, self.nan_after, self.interrupt_after = nan_every, nan_after, interrupt_after
        self.seed, self.closed = 0, 0
        Faulty.made.append(self)

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        self.seed = seed or 0
        Faulty.played += 1
        return super().reset(seed, options=options)

    def step(self, action: str) -> Any:
        if 0 < self.interrupt_after < Faulty.played and not Faulty.interrupted:
            Faulty.interrupted = True
            Faulty.steps_after_interrupt = 0
            signal.raise_signal(signal.SIGINT)
        Faulty.steps_after_interrupt += 1
        observation, reward, terminated, truncated, info = super().step(action)
        if (self.nan_every and self.seed % self.nan_every == 0) or 0 < self.nan_after < Faulty.played:
            reward = math.nan
        return observation, reward, terminated, truncated, info

    def close(self) -> None:
        self.closed += 1


gem_core.register("faulty:Faulty-v0", "tests.train.helpers:Faulty")


class Parts(GuessTheNumber):
    """The easy game with a cost per turn, which reports both components of its reward."""

    reward_components = ("end", "play")

    def __init__(self) -> None:
        super().__init__(1, 3, 2)

    def step(self, action: str) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        info["reward_components"] = {"end": reward, "play": -0.05}
        return observation, reward - 0.05, terminated, truncated, info


gem_core.register("parts:Parts-v0", "tests.train.helpers:Parts")


def options(model: Any, out: Any, **changes: Any) -> dict[str, Any]:
    """Return keyword arguments of `TrainConfig` for a run of about a second, which draws no curve."""
    return {
        "model": str(model), "out": str(out), "env": [EASY], "steps": 2, "episodes_per_step": 8,
        "minibatches": 2, "max_tokens_per_turn": 8, "eval_episodes": 4, "warmup_steps": 0,
        "learning_rate": 1e-3, "kl": 0.1, "gamma": 0.9, "trace_every": 0, "threads": 1, "device": "cpu",
        "curve": False,
    } | changes  # fmt: skip


def arguments(model: Any, out: Any, **changes: Any) -> list[str]:
    """Return the same options as command-line arguments of `gem-core train`."""
    words = ["train"]
    for name, value in options(model, out, **changes).items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            items = value if isinstance(value, list) else [value]
            words += [f"--{flag}={item}" for item in items]
    return words


def read_metrics(run: Path) -> list[dict[str, float]]:
    """Return the lines of ``metrics.jsonl`` without the values that differ between two equal runs."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [
        {key: value for key, value in json.loads(line).items() if not key.startswith("time/")}
        for line in lines
    ]


def same_weights(first: Path, second: Path) -> bool:
    """Return whether two model folders contain the same weights, bit by bit."""
    from safetensors.torch import load_file

    a, b = load_file(first / "model.safetensors"), load_file(second / "model.safetensors")
    return a.keys() == b.keys() and all(bool((a[name] == b[name]).all()) for name in a)
