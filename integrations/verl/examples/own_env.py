"""An environment of your own, trained by verl with ReBN. One file, two commands:

    python own_env.py            # play it here: no verl, no GPU
    python own_env.py train      # print the command that trains it; append options of your own

verl's worker processes import this file when it is on their path and named in
VERL_USE_EXTERNAL_MODULES, which the printed command does.
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
    "python", "-m", "verl.trainer.main_ppo",
    "algorithm.adv_estimator=rebn",
    "algorithm.gamma=0.9",
    "trainer.v1.trainer_mode=gem_sync",
    "+actor_rollout_ref.rollout.agent.agent_loop_manager_class=gem_verl.GemAgentLoopManager",
    "data.custom_cls.path=pkg://gem_verl.dataset",
    "data.custom_cls.name=GemDataset",
    "data.train_files=['example:Doubling']",
    "data.val_files=['example:Doubling']",
    "data.train_batch_size=64",
    "data.max_prompt_length=512",
    "data.max_response_length=1024",
    "actor_rollout_ref.model.path=Qwen/Qwen3-1.7B",
    "actor_rollout_ref.actor.ppo_mini_batch_size=64",
    "actor_rollout_ref.actor.use_dynamic_bsz=True",
    "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True",
    "actor_rollout_ref.rollout.name=vllm",
    "actor_rollout_ref.rollout.n=2",
    "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
    "trainer.n_gpus_per_node=1",
    "+gem.max_tokens_per_turn=256",
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


def command() -> str:
    """The command line that trains it."""
    folder = os.path.dirname(os.path.abspath(__file__))
    module = os.path.splitext(os.path.basename(__file__))[0]
    places = f"PYTHONPATH={shlex.quote(folder)} VERL_USE_EXTERNAL_MODULES={module}"
    return f"{places} {shlex.join(COMMAND)}"


if __name__ == "__main__":
    if sys.argv[1:] == ["train"]:
        print(command())
    else:
        play()
