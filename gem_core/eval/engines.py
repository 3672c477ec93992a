"""Models that run in this process, as token policies: a Hugging Face folder, and vLLM's engine."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from gem_core._util.seeds import derive_int, derive_seed
from gem_core.errors import MissingDependency, ModelError
from gem_core.eval.config import EvalConfig
from gem_core.rollout import AppendContext, Generation, Policy, extra_stop_id
from gem_core.rollout.engine import vllm_generation
from gem_core.rollout.vision import tokenizer_of


class Engine(NamedTuple):
    """A model that is ready."""

    policy: Policy
    context: AppendContext
    tokenizer: Any
    max_total_tokens: int | None


def huggingface(config: EvalConfig) -> Engine:
    """Load the folder `config.name`.

    Raises:
        ModelError: It cannot be loaded.
        ConfigError: A device that is not there, or more tokens than the model takes.
        MissingDependency: torch or transformers is missing.
    """
    try:
        import torch

        from gem_core.rollout import models
        from gem_core.rollout.sampler import BatchingPolicy
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"a Hugging Face model needs the package {error.name!r}: pip install 'gem-core[train]'"
        ) from error
    if config.threads:
        torch.set_num_threads(config.threads)
    device = models.pick_device(config.device)
    processor = models.load_processor(config.name)
    tokenizer = tokenizer_of(processor)
    context = _context(config, processor)
    model = models.load_model(config.name, device, "float32" if device.type == "cpu" else "bfloat16")
    ends = {tokenizer.eos_token_id, context.end_of_turn_id} - {None}
    pad = tokenizer.pad_token_id
    policy = BatchingPolicy(
        model,
        eos_token_ids=ends,
        pad_token_id=min(ends) if pad is None else pad,
        temperature=config.temperature,
        top_p=config.top_p,
        seed=derive_seed(config.seed, "eval", sep="/"),
        max_batch=config.concurrency,
        image_processor=context.image_processor,
    )
    return Engine(policy, context, tokenizer, models.context_limit(model, config.max_total_tokens))


def vllm(config: EvalConfig) -> Engine:
    """Start vLLM's engine on the folder or name `config.name`.

    Raises:
        ModelError: The engine does not start; its own output says why.
        MissingDependency: vLLM is not installed.
    """
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")  # standard output is for the results
    try:
        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM
    except ImportError as error:
        raise MissingDependency(
            f"the model {config.model!r} needs the package vllm ({error}); install it as its own "
            "documentation says"
        ) from error
    from transformers import AutoTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(config.name)
        args = AsyncEngineArgs(
            model=config.name, max_model_len=config.max_total_tokens, max_num_seqs=config.concurrency
        )
        engine = AsyncLLM.from_engine_args(args)
    except Exception as error:  # whatever its loaders raise
        raise ModelError(
            f"{config.name}: vLLM does not start ({' '.join(str(error).split())[:300]})"
        ) from error
    context = _context(config, tokenizer)
    policy = VllmPolicy(
        engine,
        stop_id=extra_stop_id(context, tokenizer),
        temperature=config.temperature,
        top_p=config.top_p,
        seed=config.seed,
    )
    return Engine(policy, context, tokenizer, engine.model_config.max_model_len)


def _context(config: EvalConfig, tokenizer: Any) -> AppendContext:
    return AppendContext(
        tokenizer, system_prompt=config.system_prompt, template_kwargs=config.template_kwargs
    )


class VllmPolicy:
    """vLLM's asynchronous engine as a `gem_core.rollout.Policy`.

    Args:
        engine: A ``vllm.v1.engine.async_llm.AsyncLLM``.
        stop_id: A token to stop at that the engine does not know of.
        temperature: Of sampling.
        top_p: Of sampling.
        seed: With the request's id and the length of its prompt it decides a response.
    """

    def __init__(
        self,
        engine: Any,
        *,
        stop_id: int | None = None,
        temperature: float = 1.0,
        top_p: float = 1.0,
        seed: int = 0,
    ) -> None:
        self._engine = engine
        self._stop_ids = [] if stop_id is None else [stop_id]
        self._temperature = temperature
        self._top_p = top_p
        self._seed = seed
        self._numbers = itertools.count()

    async def generate(self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str) -> Generation:
        """Sample one response."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(
            temperature=self._temperature,
            top_p=self._top_p,
            max_tokens=max_tokens,
            seed=derive_int(self._seed, request_id, len(prompt_ids), sep="/"),
            stop_token_ids=self._stop_ids,
            logprobs=1,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        last = None
        prompt = {"prompt_token_ids": list(prompt_ids)}
        async for output in self._engine.generate(prompt, params, f"{request_id}/{next(self._numbers)}"):
            last = output
        if last is None:
            raise ModelError("vLLM's engine ended without an answer")
        return vllm_generation(last)

    async def close(self) -> None:
        """Stop the engine's processes."""
        engine, self._engine = self._engine, None  # not to be found again when the interpreter ends
        engine.shutdown()
