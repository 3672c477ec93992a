"""LangChain's agent on LangGraph with the environment as its tool; tried with langgraph 1.2.24."""

from __future__ import annotations

from typing import Annotated

from gem_agents._harness import AgentTask
from gem_agents._ready._act import DESCRIPTION
from gem_agents._ready._act import act as play_action
from gem_agents._ready._needs import needs

with needs("langchain", "langgraph", "langchain-openai"):
    from langchain.agents import create_agent
    from langchain_core.tools import InjectedToolCallId, tool
    from langchain_openai import ChatOpenAI

MOST = 10_000
"""Maximum number of nodes that a run visits; the limits of the episode come first."""


async def play(task: AgentTask) -> None:
    """Run an agent that acts until it answers without a call."""

    async def act(action: str, call_id: Annotated[str, InjectedToolCallId]) -> str:
        return await play_action(task, action, call_id)

    acting = tool(description=DESCRIPTION)(act)
    model = ChatOpenAI(model=task.model, base_url=task.openai_url, api_key=task.api_key)
    messages = [{"role": "user", "content": task.prompt}]
    await create_agent(model, [acting]).ainvoke({"messages": messages}, {"recursion_limit": MOST})
