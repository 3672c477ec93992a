"""The environment as the tool ``act`` of an agent."""

from __future__ import annotations

import aiohttp

from gem_agents._harness import AgentTask

DESCRIPTION = "Plays an action in the environment of the task, and returns what is observed then."
"""Description of the tool for the model."""
OVER = "The episode is over."
"""Follows the last observation."""


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
    return f"{step['observation']}\n\n{OVER}" if step["done"] else str(step["observation"])
