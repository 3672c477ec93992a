"""smolagents with the environment as its tool; tried with smolagents 1.26.0.

It rewrites what the model said into a text, so each of its calls is a row of its own.
"""

from __future__ import annotations

import asyncio
from typing import Any

from gem_agents._harness import AgentTask
from gem_agents._ready._act import DESCRIPTION, act
from gem_agents._ready._needs import needs
from gem_core._util.threads import in_thread

with needs("smolagents[openai]"):
    from smolagents import OpenAIModel, Tool, ToolCallingAgent

MOST = 10_000
"""Maximum number of steps; the limits of the episode come first."""


async def play(task: AgentTask) -> None:
    """Run an agent that acts until it calls ``final_answer``."""
    loop = asyncio.get_running_loop()

    class Act(Tool):  # type: ignore[misc]
        name, description, output_type = "act", DESCRIPTION, "string"
        inputs = {"action": {"type": "string", "description": "The action."}}  # noqa: RUF012

        def forward(self, action: str) -> Any:
            return asyncio.run_coroutine_threadsafe(act(task, action), loop).result()

    model = OpenAIModel(task.model, api_base=task.openai_url, api_key=task.api_key)
    agent = ToolCallingAgent([Act()], model, max_steps=MOST, verbosity_level=0)
    await in_thread(agent.run, task.prompt)
