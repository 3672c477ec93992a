"""SDKs and frameworks as harnesses: agents with the tool ``act``, and conversations without tools."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from openai import AsyncOpenAI

from gem_agents import AgentTask
from gem_agents._ready._act import act as play_action

Say = Callable[[str], Awaitable[str]]
"""Sends a user's message, and returns the answer."""


async def conversation(task: AgentTask, say: Say) -> None:
    """Play an environment with one action per answer."""
    shown = task.prompt
    async with aiohttp.ClientSession() as http:
        while True:
            try:
                said = await say(shown)
            except Exception as error:
                if "episode is over" in str(error) or "too long" in str(error):  # a limit of the episode
                    return
                raise
            async with http.post(task.step_url, json={"action": said}) as result:
                step = await result.json()
            if result.status != 200 or step["done"]:
                return
            shown = step["observation"]


@asynccontextmanager
async def openai_client(task: AgentTask) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=task.openai_url, api_key=task.api_key, max_retries=0) as client:
        yield client


# -- conversations: the episodes of the own loop --------------------------------------------------


async def responses_conversation(task: AgentTask) -> None:
    items: list[Any] = []
    async with openai_client(task) as client:

        async def say(text: str) -> str:
            items.append({"role": "user", "content": text})
            answer = await client.responses.create(model=task.model, input=items)
            items.extend(item.model_dump(exclude_none=True) for item in answer.output)
            return answer.output_text

        await conversation(task, say)


async def chained_conversation(task: AgentTask) -> None:
    before: dict[str, Any] = {}
    async with openai_client(task) as client:

        async def say(text: str) -> str:
            answer = await client.responses.create(model=task.model, input=text, **before)
            before["previous_response_id"] = answer.id
            return answer.output_text

        await conversation(task, say)


async def anthropic_conversation(task: AgentTask) -> None:
    from anthropic import AsyncAnthropic

    messages: list[Any] = []
    async with AsyncAnthropic(base_url=task.url, api_key=task.api_key, max_retries=0) as client:

        async def say(text: str) -> str:
            messages.append({"role": "user", "content": text})
            asked = client.messages.stream(model=task.model, max_tokens=4000, messages=messages)
            async with asked as events:
                answer = await events.get_final_message()
            messages.append({"role": "assistant", "content": answer.content})
            return "".join(block.text for block in answer.content if block.type == "text")

        await conversation(task, say)


async def openai_agents_conversation(task: AgentTask) -> None:
    from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner

    items: list[Any] = []
    async with openai_client(task) as client:
        model = OpenAIChatCompletionsModel(model=task.model, openai_client=client)
        agent = Agent(name="policy", model=model)

        async def say(text: str) -> str:
            given = [*items, {"role": "user", "content": text}]
            done = await Runner.run(agent, given, run_config=RunConfig(tracing_disabled=True))
            items[:] = done.to_input_list()
            return str(done.final_output)

        await conversation(task, say)


async def pydantic_ai_conversation(task: AgentTask) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    history: list[Any] = []
    async with openai_client(task) as client:
        agent = Agent(OpenAIChatModel(task.model, provider=OpenAIProvider(openai_client=client)))

        async def say(text: str) -> str:
            done = await agent.run(text, message_history=history)
            history[:] = done.all_messages()
            return str(done.output)

        await conversation(task, say)


async def langgraph_conversation(task: AgentTask) -> None:
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model=task.model, base_url=task.openai_url, api_key=task.api_key, max_retries=0)
    agent, messages = create_agent(model, []), list[Any]()

    async def say(text: str) -> str:
        given = [*messages, {"role": "user", "content": text}]
        messages[:] = (await agent.ainvoke({"messages": given}))["messages"]
        return str(messages[-1].content)

    await conversation(task, say)


# -- agents with a tool, through the endpoints that the ready harnesses do not use ----------------


async def openai_agents_responses(task: AgentTask) -> None:
    from agents import Agent, OpenAIResponsesModel, RunConfig, Runner, function_tool

    @function_tool
    async def act(action: str) -> str:
        return await play_action(task, action)

    async with openai_client(task) as client:
        model = OpenAIResponsesModel(model=task.model, openai_client=client)
        agent = Agent(name="policy", instructions="Be brief.", tools=[act], model=model)
        await Runner.run(agent, task.prompt, run_config=RunConfig(tracing_disabled=True))


async def _pydantic(task: AgentTask, model: Any) -> None:
    from pydantic_ai import Agent

    agent = Agent(model, instructions="Be brief.")

    @agent.tool_plain
    async def act(action: str) -> str:
        return await play_action(task, action)

    await agent.run(task.prompt)


async def pydantic_ai_responses(task: AgentTask) -> None:
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    async with openai_client(task) as client:
        await _pydantic(task, OpenAIResponsesModel(task.model, provider=OpenAIProvider(openai_client=client)))


async def pydantic_ai_anthropic(task: AgentTask) -> None:
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    provider = AnthropicProvider(base_url=task.url, api_key=task.api_key)
    await _pydantic(task, AnthropicModel(task.model, provider=provider))


async def _langgraph(task: AgentTask, model: Any, *middleware: Any) -> None:
    from langchain.agents import create_agent
    from langchain_core.tools import tool

    @tool
    async def act(action: str) -> str:
        """Plays an action."""
        return await play_action(task, action)

    agent = create_agent(model, [act], system_prompt="Be brief.", middleware=middleware)
    await agent.ainvoke({"messages": [{"role": "user", "content": task.prompt}]})


def _chat_openai(task: AgentTask, **more: Any) -> Any:
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model=task.model, base_url=task.openai_url, api_key=task.api_key, **more)


async def langgraph_stream(task: AgentTask) -> None:
    await _langgraph(task, _chat_openai(task, streaming=True))


async def langgraph_responses(task: AgentTask) -> None:
    await _langgraph(task, _chat_openai(task, use_responses_api=True))


async def langgraph_anthropic(task: AgentTask) -> None:
    from langchain_anthropic import ChatAnthropic

    await _langgraph(
        task, ChatAnthropic(model=task.model, base_url=task.url, api_key=task.api_key, max_tokens=2000)
    )


async def langgraph_summaries(task: AgentTask) -> None:
    """Replace all but the last messages by a summary, again and again."""
    from langchain.agents.middleware import SummarizationMiddleware

    model = _chat_openai(task)
    summaries = SummarizationMiddleware(model=model, trigger=("messages", 4), keep=("messages", 2))
    await _langgraph(task, model, summaries)


async def smolagents_code(task: AgentTask) -> None:
    """Write Python as text; its interpreter runs in this process."""
    from smolagents import CodeAgent, OpenAIModel

    from gem_core._util.threads import in_thread

    model = OpenAIModel(task.model, api_base=task.openai_url, api_key=task.api_key)
    await in_thread(CodeAgent([], model, max_steps=3, verbosity_level=0).run, task.prompt)
