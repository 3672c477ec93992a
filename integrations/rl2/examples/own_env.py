"""An environment of your own, trained by RL2 with ReBN. One file, two commands:

    python own_env.py            # play it here: no RL2, no GPU
    python own_env.py train      # write the data, print the command that trains on it

RL2 imports this file before it looks at the data, because the command says +gem.modules=[own_env].
"""

from __future__ import annotations

import os
import shlex
import sys
from random import Random

from gem_rl2.export import write

import gem_core
from gem_core.envs.base import MoveResult, MoveVerdict, TurnBasedEnv
from gem_core.tasks import EnvChoice, make_tasks


class Doubling(TurnBasedEnv[int]):
    """Double a number three times; the last double solves the task, a wrong one loses it."""

    state_fields = (*TurnBasedEnv.state_fields, "number")

    def new_game(self) -> None:
        """A number from 1 to 9."""
        self.turn_limit = 3
        self.number = self.random.randint(1, 9)

    def rules(self) -> str:
        """The first observation."""
        return f"Start with {self.number}. Answer with its double in \\boxed{{}}, three times in a row."

    def parse(self, text: str) -> int | None:
        """A whole number."""
        return int(text) if text.isdecimal() and len(text) < 10 else None

    def play(self, move: int) -> MoveResult:
        """A third of the reward for each double."""
        if move != 2 * self.number:
            return f"Wrong, the double of {self.number} is {2 * self.number}.", 0.0, "lost"
        self.number = move
        verdict: MoveVerdict = "solved" if self.turn == self.turn_limit else "continue"
        return f"Right. Now double {move}.", 1 / 3, verdict

    def random_move(self, random: Random) -> str:
        """Any number."""
        return str(random.randint(1, 80))

    def best_move(self) -> str:
        """The double."""
        return str(2 * self.number)


gem_core.register("example:Doubling", Doubling)

COMMAND = [
    "torchrun", "--nproc_per_node=1", "-m", "gem_rl2.train",
    "adv.estimator=rebn",
    "adv.gamma=0.9",
    "rollout.train.prompts_per_rollout=64",
    "rollout.train.sampling_params.max_new_tokens=256",
    "actor.model_name=Qwen/Qwen3-1.7B",
    "actor.max_length_per_device=8192",
    "trainer.project=gem",
    "trainer.experiment_name=doubling",
    "trainer.total_steps=200",
    "+gem.modules=[own_env]",
]  # fmt: skip


def play() -> None:
    """One episode of the best player."""
    env = gem_core.make("example:Doubling")
    observation, _ = env.reset(seed=0)
    done = False
    while not done:
        action = env.oracle_action()
        print(f"{observation}  ->  {action}")
        observation, reward, terminated, truncated, _ = env.step(action or "")
        done = terminated or truncated
    print(f"last reward {reward:.2f}")


def train(data: str = "doubling.jsonl") -> str:
    """Write the data; the command line that trains on it."""
    write(make_tasks([EnvChoice("example:Doubling")], 10_000), data)
    path = os.path.dirname(os.path.abspath(__file__))
    return f"PYTHONPATH={shlex.quote(path)} {shlex.join([*COMMAND, f'rollout.train.path={data}'])}"


if __name__ == "__main__":
    if sys.argv[1:] == ["train"]:
        print(train())
    else:
        play()
