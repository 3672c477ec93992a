"""An agent of a study: a program that plays a game with OpenAI's SDK."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import aiohttp
from openai import AsyncOpenAI

from gem_agents import AgentTask


@lru_cache(maxsize=1)
def _client() -> AsyncOpenAI:
    """Return the client of all episodes, because a new one reads the certificates of the system."""
    return AsyncOpenAI(base_url="http://127.0.0.1", api_key="none", timeout=600)


async def guess(task: AgentTask) -> None:
    """Ask the model for an action, play it, and show what happened, until the game is over."""
    client = _client().with_options(base_url=task.openai_url)
    messages: list[Any] = [{"role": "user", "content": task.prompt}]
    async with aiohttp.ClientSession() as http:
        while True:
            answer = await client.chat.completions.create(model=task.model, messages=messages)
            said = answer.choices[0].message.content or ""
            async with http.post(task.step_url, json={"action": said}) as result:
                step = await result.json()
            if step["done"]:
                return
            messages += [
                {"role": "assistant", "content": said},
                {"role": "user", "content": step["observation"]},
            ]
