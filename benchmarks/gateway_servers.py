"""The servers of `gateway_study.py`, each in a process of its own.

    python gateway_servers.py engine           # prints its address
    python gateway_servers.py gem-core ENGINE  # prints its address; opens and closes episodes on request

The engine answers chat completions, as those in front of it forward them, and token ids, as gem-core asks for
them. Both get the same tokens.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import Sequence
from typing import Any

import aiohttp
from aiohttp import web
from gateway_load import make_tokenizer

ANSWER = "I read the file, and the second function returns one entry too few."
"""What the engine says, one token per letter."""


def sampled() -> tuple[list[int], list[float]]:
    """Return the token ids of the answer, as no encoder would write them, and their log-probs."""
    tokenizer = make_tokenizer()
    ids = [tokenizer.encode(letter)[0] for letter in ANSWER] + [tokenizer.eos_token_id]
    return ids, [-0.1] * len(ids)


def completion(ids: list[int], logprobs: list[float]) -> dict[str, Any]:
    """Return the answer to a chat completion, with token ids as vLLM writes them."""
    tokens = [
        {"token": letter, "logprob": logprob, "bytes": None, "top_logprobs": []}
        for letter, logprob in zip([*ANSWER, "<|im_end|>"], logprobs, strict=True)
    ]
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": ANSWER},
        "finish_reason": "stop",
        "token_ids": ids,
        "logprobs": {"content": tokens},
    }
    usage = {"prompt_tokens": 500, "completion_tokens": len(ids), "total_tokens": 500 + len(ids)}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "policy",
        "choices": [choice],
        "prompt_token_ids": list(range(500)),
        "usage": usage,
    }


async def listen(app: web.Application) -> None:
    """Serve until the standard input ends."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    print(f"http://{host}:{port}", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def engine() -> None:
    """Answer with the same tokens, whatever is asked."""
    ids, logprobs = sampled()
    answers = {
        "/v1/chat/completions": json.dumps(completion(ids, logprobs)).encode(),
        "/generate": json.dumps({"token_ids": ids, "logprobs": logprobs}).encode(),
    }
    models = {"object": "list", "data": [{"id": "policy", "object": "model"}]}

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=answers[request.path], content_type="application/json")

    async def others(_: web.Request) -> web.Response:
        return web.json_response(models)

    app = web.Application(client_max_size=1 << 30)
    for path in answers:
        app.router.add_post(path, answer)
    for path in ("/v1/models", "/health"):
        app.router.add_get(path, others)
    await listen(app)


class Remote:
    """A policy that asks the engine over HTTP, as the peers do."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self._url, self._http = url, http

    async def generate(self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str) -> Any:
        from gem_core.rollout import Generation

        body = {"prompt": list(prompt_ids), "max_tokens": max_tokens}
        async with self._http.post(f"{self._url}/generate", json=body) as answer:
            said = await answer.json()
        return Generation(said["token_ids"], said["logprobs"], "stop")


async def gem_core(url: str) -> None:
    """Open an episode for each line ``open`` of the standard input, and close all at ``close``."""
    from gem_agents._gateway import Gateway
    from gem_agents._session import Session, SessionLimits
    from gem_agents._turns import turns_of
    from gem_chat import AppendContext
    from gem_core.rollout._dialogue import TokenLimits

    gateway, context = Gateway(), AppendContext(make_tokenizer())
    limits, numbers = SessionLimits(1000, TokenLimits(4096)), itertools.count()
    sessions: list[Session] = []
    loop = asyncio.get_running_loop()
    async with aiohttp.ClientSession() as http:
        policy = Remote(url, http)
        print("ready", flush=True)
        while line := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
            if line == "open":
                session = await gateway.open(policy, context, limits, f"episode {next(numbers)}")
                sessions.append(session)
                print(gateway.address(session), flush=True)
                continue
            turns = 0
            for session in sessions:
                await gateway.close(session)
                turns += len(turns_of(session.delivered())[0])
            sessions.clear()
            print(turns, flush=True)


if __name__ == "__main__":
    asyncio.run(engine() if sys.argv[1] == "engine" else gem_core(sys.argv[2]))
