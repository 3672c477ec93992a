"""vLLM on a CPU under a trainer, for tests; an entry point of the group ``vllm.general_plugins``."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from gem_script import Script, scripted_vllm


def register() -> None:
    """Allow weights to be loaded twice, and record the inputs and outputs of every request."""
    _keep_plain_weights()
    if os.environ.get("GEM_SPY"):
        _note_requests(os.path.join(os.environ["GEM_SPY"], "engine.jsonl"))


def _keep_plain_weights() -> None:
    """Keep plain weights, because vLLM packs linear weights for the CPU, which prevents reloading."""
    import torch
    import vllm.model_executor.layers.utils as utils

    def plain(layer: Any, remove_weight: bool = False) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    utils.dispatch_cpu_unquantized_gemm = plain
    embedding = sys.modules.get("vllm.model_executor.layers.vocab_parallel_embedding")
    if hasattr(embedding, "dispatch_cpu_unquantized_gemm"):
        embedding.dispatch_cpu_unquantized_gemm = plain  # type: ignore[union-attr]


def _note_requests(path: str) -> None:
    module = sys.modules.get("vllm.v1.engine.async_llm")
    if module is None or hasattr(module.AsyncLLM.generate, "noted"):
        return  # the engine's own process, or already done
    script = Script.from_environment()
    generate = scripted_vllm(script) if script else module.AsyncLLM.generate
    open(path, "a").close()  # exists as soon as the engine starts

    async def noting(self: Any, prompt: Any, *args: Any, **kwargs: Any) -> Any:
        last = None
        async for output in generate(self, prompt, *args, **kwargs):
            last = output
            yield output
        if last is not None and last.outputs:
            sample = last.outputs[0]
            given = sample.logprobs or []
            logprobs = [
                step[token].logprob for token, step in zip(sample.token_ids, given, strict=bool(given))
            ]
            record = {
                "prompt": list(last.prompt_token_ids), "response": list(sample.token_ids),
                "logprobs": logprobs, "finish_reason": sample.finish_reason,
            }  # fmt: skip
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")

    noting.noted = True  # type: ignore[attr-defined]
    module.AsyncLLM.generate = noting
