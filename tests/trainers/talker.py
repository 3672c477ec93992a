"""An agent that owns its loop and needs no SDK: it plays the episodes of the own loop through the gateway."""

from __future__ import annotations

from typing import Any

import aiohttp

from gem_agents import AgentTask


async def talk(task: AgentTask) -> None:
    """Play an environment with one action per answer."""
    messages: list[Any] = [{"role": "user", "content": task.prompt}]
    async with aiohttp.ClientSession() as http:
        while True:
            body = {"model": task.model, "messages": messages}
            async with http.post(f"{task.openai_url}/chat/completions", json=body) as answer:
                if answer.status != 200:  # a limit of the episode
                    return
                said = (await answer.json())["choices"][0]["message"]["content"]
            async with http.post(task.step_url, json={"action": said}) as result:
                step = await result.json()
            if result.status != 200 or step["done"]:
                return
            messages += [
                {"role": "assistant", "content": said},
                {"role": "user", "content": step["observation"]},
            ]
