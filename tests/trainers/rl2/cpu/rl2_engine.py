"""Stub of SGLang's server: the same protocol with a transformers model, for tests on a CPU.

    python -m rl2_engine MODEL HOST PORT

Records each answer in ``engine.jsonl`` in the folder GEM_SPY. While it is paused, running requests end with
the reason "abort" and new requests wait, as in SGLang.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from aiohttp import web
from gem_script import Script
from rl2_sglang import named_tensors
from transformers import AutoModelForCausalLM, AutoTokenizer

from gem_chat._stop_ids import engine_stop_ids
from gem_lab._engines.sampling import BatchingPolicy

CHUNK = 8
"""Number of tokens sampled between two checks of whether the engine is paused."""
GATHER = 0.005
"""Seconds during which requests are collected into a batch."""


class Engine:
    """A model and its requests."""

    def __init__(self, path: str) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(path)
        self.model = AutoModelForCausalLM.from_pretrained(path, torch_dtype=torch.float32).eval()
        self.stop_ids = engine_stop_ids(self.tokenizer)
        self.numbers = itertools.count()
        self.running = asyncio.Event()
        self.running.set()
        self.samplers: dict[tuple[float, tuple[int, ...]], BatchingPolicy] = {}
        seed, process = os.environ.get("GEM_ENGINE_SEED", "0"), os.environ.get("RANK", "0")
        self.seed = f"{seed}/{process}"
        self.script = Script.from_environment()

    def sampler(self, params: dict[str, Any]) -> BatchingPolicy:
        """Return the sampler for these parameters; at temperature 0 it picks the most likely token."""
        key = (float(params.get("temperature", 1.0)), tuple(params.get("stop_token_ids") or ()))
        if key not in self.samplers:
            self.samplers[key] = BatchingPolicy(
                self.model,
                eos_token_ids=[*self.stop_ids, *key[1]],
                pad_token_id=0,
                temperature=key[0] or 1.0,
                top_k=0 if key[0] else 1,
                seed=self.seed,
                reuse_prefix=False,
            )
        return self.samplers[key]

    async def generate(self, prompt: list[int], params: dict[str, Any]) -> dict[str, Any]:
        """Return SGLang's answer to a request."""
        most = params.get("max_new_tokens") or 128
        if self.script:
            answer = self.script.answer(prompt, most)
            return self.answer(answer.token_ids, answer.logprobs, answer.finish_reason, prompt, params)
        ids: list[int] = []
        logprobs: list[float] = []
        reason = "length"
        await self.running.wait()
        await asyncio.sleep(GATHER)
        while len(ids) < most and reason != "stop":
            if not self.running.is_set():
                reason = "abort"
                break
            part = await self.sampler(params).generate(
                [*prompt, *ids], max_tokens=min(CHUNK, most - len(ids)), request_id=str(next(self.numbers))
            )
            ids += part.token_ids
            logprobs += part.logprobs or []
            reason = part.finish_reason
            await asyncio.sleep(0)
        return self.answer(ids, logprobs, reason, prompt, params)

    def answer(
        self, ids: list[int], logprobs: list[float], reason: str, prompt: list[int], params: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the answer in SGLang's format, and record it."""
        note("engine", prompt=prompt, response=ids, logprobs=logprobs, finish_reason=reason, params=params)
        sampled = [[logprob, token, None] for logprob, token in zip(logprobs, ids, strict=True)]
        skip = params.get("skip_special_tokens", True)
        meta = {
            "finish_reason": {"type": reason},
            "completion_tokens": len(ids),
            "prompt_tokens": len(prompt),
        }
        return {
            "text": self.tokenizer.decode(ids, skip_special_tokens=skip),
            "output_ids": ids,
            "meta_info": meta | ({"output_token_logprobs": sampled} if sampled else {}),
        }

    def update(self, sent: list[str]) -> None:
        """Load weights; an unknown name is an error."""
        state = self.model.state_dict()
        with torch.no_grad():
            for name, tensor in named_tensors(sent):
                state[name].copy_(tensor)


def note(file: str, **values: Any) -> None:
    with open(Path(os.environ["GEM_SPY"]) / f"{file}.jsonl", "a", encoding="utf-8") as out:
        out.write(json.dumps(values) + "\n")


def application(engine: Engine, path: str) -> web.Application:
    async def ok(request: web.Request) -> web.Response:
        return web.json_response({"success": True})

    async def info(request: web.Request) -> web.Response:
        return web.json_response({"model_path": path, "tokenizer_path": path, "is_generation": True})

    async def generate(request: web.Request) -> web.Response:
        body = await request.json()
        return web.json_response(await engine.generate(body["input_ids"], body["sampling_params"]))

    async def update(request: web.Request) -> web.Response:
        engine.update((await request.json())["serialized_named_tensors"])
        return await ok(request)

    async def pause(request: web.Request) -> web.Response:
        engine.running.clear()
        note("pauses", paused=True)
        return await ok(request)

    async def resume(request: web.Request) -> web.Response:
        engine.running.set()
        return await ok(request)

    made = web.Application(client_max_size=1 << 30)
    for name in ("health", "health_generate"):
        made.router.add_get(f"/{name}", ok)
    for name in ("get_model_info", "get_server_info", "model_info", "server_info"):
        made.router.add_get(f"/{name}", info)
    for name in ("release_memory_occupation", "resume_memory_occupation", "flush_cache"):
        made.router.add_post(f"/{name}", ok)
    made.router.add_post("/generate", generate)
    made.router.add_post("/update_weights_from_tensor", update)
    made.router.add_post("/pause_generation", pause)
    made.router.add_post("/continue_generation", resume)
    return made


def main(path: str, host: str, port: str) -> None:
    torch.set_num_threads(1)

    async def start() -> web.Application:
        return application(Engine(path), path)

    web.run_app(start(), host=host, port=int(port), print=None, access_log=None)


if __name__ == "__main__":
    main(*sys.argv[1:])
