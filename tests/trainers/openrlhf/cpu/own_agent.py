"""An agent function like those of OpenRLHF's users: three answers, and a reward for the last one."""

from __future__ import annotations

import zlib
from typing import Any

import torch
from openrlhf.utils.agent import AgentInstanceBase, MultiTurnAgentExecutor

ANSWERS = 3
"""Number of answers after which the agent gives its reward."""


def reward_of(answer: str) -> float:
    """Return a number that depends on the answer."""
    return zlib.crc32(answer.encode()) % 100 / 100


class AgentInstance(AgentInstanceBase):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.answers = 0

    async def step(self, states: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        self.answers += 1
        done = self.answers == ANSWERS
        return {
            "rewards": torch.tensor(reward_of(states["action_text"]) if done else 0.0),
            "scores": 0.0,
            "environment_feedback": " And then? ",
            "done": done,
            "sampling_params": states["sampling_params"],
            "extra_logs": {},
        }


class AgentExecutor(MultiTurnAgentExecutor):
    def __init__(self) -> None:
        super().__init__(AgentInstance)
