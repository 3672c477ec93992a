"""An environment of your own, trained by Oat with ReBN. One file, two commands:

    python own_env.py            # play it here: no Oat, no GPU
    python own_env.py train      # print the command that trains it; add your own flags behind it

Oat's processes import this file because the printed command puts its folder on the path and names it
in --modules.
"""

from __future__ import annotations

import os
import shlex
import sys
from random import Random

import gem_core
from gem_core.envs.base import MoveResult, MoveVerdict, TurnBasedEnv


class Countdown(TurnBasedEnv[int]):
    """Take one to three from a heap in each turn; emptying it exactly solves the task."""

    state_fields = (*TurnBasedEnv.state_fields, "heap")

    def new_game(self) -> None:
        """A heap of 5 to 9."""
        self.turn_limit = 5
        self.heap = self.random.randint(5, 9)

    def rules(self) -> str:
        """The first observation."""
        return (
            f"There are {self.heap} stones. Take 1, 2 or 3 in each turn and answer with the number in "
            "\\boxed{}. Empty the heap exactly, in at most five turns."
        )

    def parse(self, text: str) -> int | None:
        """1, 2 or 3."""
        return int(text) if text in ("1", "2", "3") else None

    def play(self, move: int) -> MoveResult:
        """Paid when the heap is empty; lost when there were fewer stones."""
        if move > self.heap:
            return f"There are only {self.heap} stones.", 0.0, "lost"
        self.heap -= move
        verdict: MoveVerdict = "continue" if self.heap else "solved"
        return f"{self.heap} stones are left.", 0.0 if self.heap else 1.0, verdict

    def random_move(self, random: Random) -> str:
        """Any legal number."""
        return str(random.randint(1, 3))

    def best_move(self) -> str:
        """As many as possible."""
        return str(min(3, self.heap))


gem_core.register("example:Countdown", Countdown)

COMMAND = [
    "python", "-m", "gem_oat.train",
    "--env-id", "example:Countdown",
    "--modules", os.path.splitext(os.path.basename(__file__))[0],
    "--gamma", "0.9",
    "--gpus", "1",
    "--collocate",
    "--vllm_gpu_ratio", "0.35",
    "--pretrain", "Qwen/Qwen3-0.6B",
    "--max_model_len", "4096",
    "--generate_max_length", "512",
    "--rollout_batch_size", "128",
    "--rollout_batch_size_per_device", "128",
    "--train_batch_size", "128",
    "--train_batch_size_per_device", "1",
    "--num-env", "16",
    "--learning_rate", "1e-6",
    "--beta", "0",
    "--max_train", "25600",
]  # fmt: skip


def play() -> None:
    """One episode of the best player."""
    env = gem_core.make("example:Countdown")
    observation, _ = env.reset(seed=0)
    done = False
    while not done:
        action = env.oracle_action()
        print(f"{observation}  ->  {action}")
        observation, reward, terminated, truncated, _ = env.step(action or "")
        done = terminated or truncated
    print(f"last reward {reward:.2f}")


def command() -> str:
    """The command line that trains it."""
    folder = os.path.dirname(os.path.abspath(__file__))
    return f"PYTHONPATH={shlex.quote(folder)} {shlex.join(COMMAND)}"


if __name__ == "__main__":
    if sys.argv[1:] == ["train"]:
        print(command())
    else:
        play()
