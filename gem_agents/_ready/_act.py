"""The environment as the tool ``act`` of an agent."""

from __future__ import annotations

import aiohttp

from gem_agents._harness import AgentTask
from gem_agents._mcp import ACT, observed

DESCRIPTION = str(ACT["description"])
"""Description of the tool for the model."""


async def act(task: AgentTask, action: str, call_id: str | None = None) -> str:
    """Play an action, and return the observation.

    Args:
        task: The episode.
        action: The action.
        call_id: Id of the tool call, whose turn gets the reward; None for the newest turn.
    """
    body = {"action": action, "call_id": call_id}
    async with aiohttp.ClientSession() as http, http.post(task.step_url, json=body) as answer:
        step = await answer.json()
    if "error" in step:
        return str(step["error"]["message"])
    return observed(step)
