"""pydantic-ai with the environment as its tool; tried with pydantic-ai-slim 2.68.0."""

from __future__ import annotations

from gem_agents._harness import AgentTask
from gem_agents._ready._act import DESCRIPTION
from gem_agents._ready._act import act as play_action
from gem_agents._ready._needs import needs

with needs("pydantic-ai-slim[openai]"):
    from openai import AsyncOpenAI
    from pydantic_ai import Agent, RunContext, Tool
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.usage import UsageLimits


async def play(task: AgentTask) -> None:
    """Run an agent that acts until it answers without a call."""

    async def act(context: RunContext[None], action: str) -> str:
        return await play_action(task, action, context.tool_call_id)

    async with AsyncOpenAI(base_url=task.openai_url, api_key=task.api_key) as client:
        model = OpenAIChatModel(task.model, provider=OpenAIProvider(openai_client=client))
        agent = Agent(model, tools=[Tool(act, description=DESCRIPTION)])
        await agent.run(task.prompt, usage_limits=UsageLimits(request_limit=None))
