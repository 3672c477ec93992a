"""An environment of your own, trained by OpenRLHF with ReBN. One file, three uses:

python own_env.py            # play it here: no OpenRLHF, no GPU
python own_env.py train      # write the data and print the command that trains it
--train.agent_func_path own_env.py    # what that command does with this file
"""

from __future__ import annotations

import os
import shlex
import sys
from random import Random

import gem_core
from gem_core.envs.base import MoveResult, MoveVerdict, TurnBasedEnv


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
    "python3", "-m", "gem_openrlhf.train_ppo_ray",
    "--algo.advantage.estimator", "rebn",
    "--algo.advantage.gamma", "0.9",
    "--data.prompt_dataset", "doubling.jsonl",
    "--data.input_key", "input",
    "--data.label_key", "label",
    "--actor.model_name_or_path", "Qwen/Qwen3-1.7B",
    "--actor.num_gpus_per_node", "1",
    "--vllm.num_engines", "1",
    "--algo.kl.init_coef", "0",
    "--data.max_len", "1536",
    "--rollout.max_new_tokens", "256",
    "--rollout.batch_size", "64",
    "--rollout.n_samples_per_prompt", "2",
]  # fmt: skip


def __getattr__(name: str) -> object:
    """OpenRLHF's rollout workers import this file and look for `AgentExecutor`."""
    if name == "AgentExecutor":
        from gem_openrlhf import GemExecutor

        return GemExecutor
    raise AttributeError(name)


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


def command() -> str:
    """The command line that trains it."""
    return shlex.join([*COMMAND, "--train.agent_func_path", os.path.abspath(__file__)])


def write_data() -> None:
    """The rows that the command reads."""
    from gem_openrlhf.export import write

    from gem_core.tasks import EnvChoice, make_tasks

    write(make_tasks([EnvChoice("example:Doubling")], 10_000), "doubling.jsonl")


if __name__ == "__main__":
    if sys.argv[1:] == ["train"]:
        write_data()
        print(command())
    else:
        play()
