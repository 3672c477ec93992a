"""`GemTextEnv`: our environments as an environment of skyrl-gym, and the rows of a dataset for them.

    register_gem()  # in the process that makes environments, before training
    rows = task_rows("game:Mastermind-v0", 1000)

A row has ``env_class="gem"`` and our task in "extra_info". The result of `init` replaces the prompt of the
row, except for its system messages.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import skyrl_gym
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from gem_core import render_observation
from gem_core._core import require_one_agent
from gem_core._util.checks import check_int
from gem_core.tasks import EnvChoice, make_tasks, read_task, reset_arguments

ENV_CLASS = "gem"


class GemTextEnv(BaseTextEnv):  # type: ignore[misc]  # untyped
    """An episode of one task.

    The reward of a turn is the reward of that step. The metadata of a step has "truncated", and also
    "invalid" and "success" if they are known. After the turn limit of SkyRL, the episode is truncated.

    Args:
        env_config: Unused: the task holds the arguments of the environment.
        extras: Row without its prompt: the task is in "extra_info", the turn limit in "max_turns".

    Raises:
        ConfigError: The row holds no task, or the environment has several agents.
    """

    def __init__(self, env_config: Any = None, extras: dict[str, Any] | None = None) -> None:
        super().__init__()
        extras = extras or {}
        self.task = read_task(dict(extras.get("extra_info") or extras))
        self.max_turns = check_int("max_turns", extras.get("max_turns"), 1, optional=True)
        self.env = EnvChoice.of(self.task).make()
        require_one_agent(self.env, "SkyRL")
        self.total_reward = 0.0
        self.invalid_actions = 0
        self.success: bool | None = None
        self.truncated = False

    def init(self, prompt: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Start the episode; return the system messages of `prompt` and the first observation."""
        observation, info = self.env.reset(**reset_arguments(self.task))
        system = [dict(message) for message in prompt or () if message.get("role") == "system"]
        return [*system, _message(observation, info)], {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Take one response."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.turns += 1
        self.total_reward += reward
        self.invalid_actions += info.get("invalid") is not None
        if self.max_turns is not None and self.turns >= self.max_turns and not terminated:
            truncated = True
        done = terminated or truncated
        if done:
            self.success, self.truncated = bool(info.get("success")), truncated
        metadata = {"truncated": truncated}
        metadata |= {key: info[key] for key in ("invalid", "success") if info.get(key) is not None}
        return BaseTextEnvStepOutput(
            observations=[] if done else [_message(observation, info)],
            reward=reward,
            done=done,
            metadata=metadata,
        )

    def get_metrics(self) -> dict[str, float]:
        """Return the metrics of the episode, with our names."""
        metrics = {
            "gem/return": self.total_reward,
            "gem/turns": float(self.turns),
            "gem/truncation_rate": float(self.truncated),
            "gem/format_error_rate": self.invalid_actions / max(1, self.turns),
        }
        return metrics if self.success is None else metrics | {"gem/success": float(self.success)}

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


def register_gem(id: str = ENV_CLASS) -> None:
    """Register `GemTextEnv` with skyrl-gym. Has no effect if the id is registered already."""
    if id not in skyrl_gym.registry:
        skyrl_gym.register(id=id, entry_point="gem_bridges.skyrl:GemTextEnv")


def task_rows(env: str, count: int, seed: int = 0, system: str = "") -> list[dict[str, Any]]:
    """Return rows of a SkyRL dataset with training tasks.

    Args:
        env: Id, or ``ID(key=value, ...)``.
        count: Number of rows.
        seed: Seed of the tasks.
        system: System prompt; "" for none.
    """
    choice = EnvChoice.parse(env)
    prompt = [{"role": "system", "content": system}] if system else []
    return [
        {
            "data_source": choice.label,
            "prompt": [*prompt, {"role": "user", "content": ""}],
            "env_class": ENV_CLASS,
            "reward_spec": {"method": "rule", "ground_truth": ""},
            "extra_info": {**task, "env_kwargs": json.dumps(task["env_kwargs"])},
        }
        for task in make_tasks([choice], count, seed=seed)
    ]


def _message(observation: Any, info: Any) -> dict[str, Any]:
    return {"role": "user", "content": render_observation(observation, info)}
