"""OpenAI's Agents SDK with the environment as its tool; tried with openai-agents 0.24.0.

It calls chat completions: on Responses, the SDK fails at an answer that a limit on tokens has cut.
"""

from __future__ import annotations

from typing import Any

from gem_agents._harness import AgentTask
from gem_agents._ready._act import DESCRIPTION
from gem_agents._ready._act import act as play_action
from gem_agents._ready._needs import needs

with needs("openai-agents"):
    from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner, function_tool
    from agents.tool_context import ToolContext
    from openai import AsyncOpenAI


async def play(task: AgentTask) -> None:
    """Run an agent that acts until it answers without a call."""

    async def act(context: ToolContext[Any], action: str) -> str:
        return await play_action(task, action, context.tool_call_id)

    tool = function_tool(act, description_override=DESCRIPTION)
    async with AsyncOpenAI(base_url=task.openai_url, api_key=task.api_key) as client:
        model = OpenAIChatCompletionsModel(model=task.model, openai_client=client)
        agent = Agent(name="policy", tools=[tool], model=model)
        await Runner.run(agent, task.prompt, max_turns=None, run_config=RunConfig(tracing_disabled=True))
