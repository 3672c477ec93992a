"""An environment of your own, trained by verl with ReBN. One file, two commands:

    python own_env.py            # play it here: no verl, no GPU
    python own_env.py train      # print the command that trains it; add your own words behind it

verl's worker processes import this file when it is on their path and named in
VERL_USE_EXTERNAL_MODULES, which the printed command does.
"""

from __future__ import annotations

import os
import shlex
import sys
from typing import Any

import gem_core
from gem_core.core import Env
from gem_core.text import last_boxed


class Doubling(Env):
    """Double a number three times; each right step pays, a wrong one ends the episode."""

    state_fields = ("number", "turn")
    max_return = 3.0

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        """A number from 1 to 9."""
        self.begin_episode(seed)
        self.number, self.turn = self.random.randint(1, 9), 0
        return f"Start with {self.number}. Answer with its double in \\boxed{{}}.", {}

    def step(self, action: str) -> Any:
        """Reward 1 for the double."""
        self.require_reset()
        answer = last_boxed(action)
        right = answer is not None and answer.strip() == str(2 * self.number)
        self.number, self.turn = 2 * self.number, self.turn + 1
        done = not right or self.turn == 3
        info = {"invalid": None if answer is not None else "format"}
        if done:
            self.end_episode()
            info["success"] = right
        return f"Right. Now double {self.number}.", float(right), done, False, info

    def sample_random_action(self) -> str:
        """Any number."""
        return rf"\boxed{{{self.action_random.randint(1, 80)}}}"

    def oracle_action(self) -> str:
        """The double."""
        return rf"\boxed{{{2 * self.number}}}"


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
        print(f"{observation}  ->  {action}")  # noqa: T201
        observation, reward, terminated, truncated, _ = env.step(action or "")
        done = terminated or truncated
    print(f"last reward {reward}")  # noqa: T201


def command() -> str:
    """The command line that trains it."""
    folder = os.path.dirname(os.path.abspath(__file__))
    module = os.path.splitext(os.path.basename(__file__))[0]
    places = f"PYTHONPATH={shlex.quote(folder)} VERL_USE_EXTERNAL_MODULES={module}"
    return f"{places} {shlex.join(COMMAND)}"


if __name__ == "__main__":
    if sys.argv[1:] == ["train"]:
        print(command())  # noqa: T201
    else:
        play()
