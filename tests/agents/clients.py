"""Agents that own their loop, for tests: they know an address and nothing else."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from typing import Any

import aiohttp

from gem_agents import AgentTask


async def guesser(task: AgentTask, path: str | None = None) -> None:
    """Play an environment with OpenAI's SDK, one action per answer, over a Unix socket if there is a path."""
    from openai import AsyncOpenAI, BadRequestError

    messages: list[Any] = [{"role": "user", "content": task.prompt}]
    client = AsyncOpenAI(
        base_url=task.openai_url, api_key=task.api_key, max_retries=0, http_client=path and over(path)
    )
    async with client, aiohttp.ClientSession(connector=path and aiohttp.UnixConnector(path)) as http:
        while True:
            try:
                answer = await client.chat.completions.create(model=task.model, messages=messages)
            except BadRequestError:  # a limit of the episode
                return
            said = answer.choices[0].message.content or ""
            async with http.post(task.step_url, json={"action": said}) as result:
                step = await result.json()
            if result.status != 200 or step["done"]:
                return
            messages += [
                {"role": "assistant", "content": said},
                {"role": "user", "content": step["observation"]},
            ]


def over(path: str) -> Any:
    """Return a client of OpenAI's SDK that speaks over a Unix socket; its package depends on the version."""
    from openai import DefaultAsyncHttpxClient

    http: Any = importlib.import_module(DefaultAsyncHttpxClient.__mro__[1].__module__.partition(".")[0])
    return DefaultAsyncHttpxClient(transport=http.AsyncHTTPTransport(uds=path))


async def forgetful(task: AgentTask) -> None:
    """Play an environment, and send only its last observation."""
    shown = task.prompt
    async with aiohttp.ClientSession() as http:
        while True:
            body = {"model": "m", "messages": [{"role": "user", "content": shown}]}
            async with http.post(f"{task.openai_url}/chat/completions", json=body) as answer:
                if answer.status != 200:
                    return
                said = (await answer.json())["choices"][0]["message"]["content"]
            async with http.post(task.step_url, json={"action": said}) as result:
                step = await result.json()
            if result.status != 200 or step["done"]:
                return
            shown = step["observation"]


async def single(task: AgentTask) -> None:
    """Answer once, and leave."""
    body = {"model": "m", "messages": [{"role": "user", "content": task.prompt}]}
    async with aiohttp.ClientSession() as http, http.post(f"{task.url}/v1/messages", json=body) as answer:
        await answer.read()


async def crashing(task: AgentTask) -> None:
    """Answer once, and fail."""
    await single(task)
    raise RuntimeError("no such key: 'x'")


async def acting(task: AgentTask) -> None:
    """Act with the tool ``act`` of the environment until an answer holds no call."""
    await _act(task, lambda message: message)


async def rewriting(task: AgentTask) -> None:
    """Like `acting`, but write what the model said in other words."""
    await _act(task, lambda message: {**message, "content": f"I said: {message['content']}"})


async def _act(task: AgentTask, kept: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    shape = {"type": "object", "properties": {"action": {"type": "string"}}, "required": ["action"]}
    tool = {"type": "function", "function": {"name": "act", "description": "Acts.", "parameters": shape}}
    messages: list[dict[str, Any]] = [{"role": "user", "content": task.prompt}]
    async with aiohttp.ClientSession(headers={"X-Agent": "7"}) as http:
        while True:
            body = {"model": "m", "messages": messages, "tools": [tool], "temperature": 0}
            async with http.post(f"{task.openai_url}/chat/completions", json=body) as answer:
                said = (await answer.json())["choices"][0]["message"]
            messages.append(
                kept({name: said[name] for name in ("role", "content", "tool_calls") if name in said})
            )
            if not said.get("tool_calls"):
                return
            for call in said["tool_calls"]:
                action = {**json.loads(call["function"]["arguments"]), "call_id": call["id"]}
                async with http.post(task.step_url, json=action) as result:
                    seen = (await result.json())["observation"]
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": seen})
