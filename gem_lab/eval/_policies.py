"""Open the policy that an evaluation names."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from gem_chat import EnvPlayer, MessagesContext
from gem_chat._options import make_context
from gem_chat._stop_ids import engine_stop_ids, response_stops
from gem_chat._vision import tokenizer_of
from gem_core._util.seeds import derive_seed
from gem_core.errors import MissingDependency, ModelError
from gem_core.rollout import Context
from gem_core.rollout._agents import AnyPolicy
from gem_envs._working_directory import import_torch
from gem_lab._engines.endpoint import Endpoint
from gem_lab._engines.patience import Patience
from gem_lab._engines.vllm import VllmPolicy
from gem_lab.eval._config import EvalConfig


class PolicySetup(NamedTuple):
    """A policy, and everything that its episodes need."""

    policy: AnyPolicy
    context: Context
    tokenizer: Any = None
    max_total_tokens: int | None = None


def open_policy(config: EvalConfig, note: Callable[[str], None] | None = None) -> PolicySetup:
    """Open the policy that ``config.model`` names.

    Args:
        config: Options of the evaluation.
        note: Function that takes one line for the user; None to discard these lines.

    Raises:
        GemError: The policy cannot be opened; see `evaluate`.
    """
    if config.kind == "random" or config.kind == "oracle":
        return PolicySetup(EnvPlayer(config.kind), MessagesContext())
    if config.kind == "endpoint":
        endpoint = Endpoint(
            config.name,
            base_url=config.base_url,
            api_key=config.api_key,
            temperature=config.temperature,
            top_p=config.top_p,
            seed=config.seed,
            extra_body=config.extra_body,
            timeout=config.timeout,
            patience=Patience(config.patience),
            requests_per_minute=config.requests_per_minute,
            tokens_per_minute=config.tokens_per_minute,
        )
        if note is not None:
            note(f"asking {config.name} at {endpoint.address}")
        context = MessagesContext(
            system_prompt=config.system_prompt,
            native_tools=bool(config.native_tools),
            parse_special=config.parse_special,
        )
        return PolicySetup(endpoint, context)
    return huggingface(config) if config.kind == "hf" else vllm(config)


def huggingface(config: EvalConfig) -> PolicySetup:
    """Load the folder `config.name`.

    Raises:
        ModelError: The model cannot be loaded.
        ConfigError: The device does not exist, or the token limit exceeds the limit of the model.
        MissingDependency: torch or transformers is missing.
    """
    import_torch()
    try:
        import torch

        from gem_lab._engines import loading
        from gem_lab._engines.sampling import BatchingPolicy
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"a Hugging Face model needs the package {error.name!r}: pip install 'gem-core[train]'"
        ) from error
    if config.threads:
        torch.set_num_threads(config.threads)
    device = loading.pick_device(config.device)
    processor = loading.load_processor(config.name)
    tokenizer = tokenizer_of(processor)
    context = make_context(config, processor, stop_ids=engine_stop_ids(tokenizer))
    model = loading.load_model(config.name, device, "float32" if device.type == "cpu" else "bfloat16")
    ends = response_stops(context, tokenizer).all
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
    return PolicySetup(policy, context, tokenizer, loading.context_limit(model, config.max_total_tokens))


def vllm(config: EvalConfig) -> PolicySetup:
    """Start a vLLM engine with the model folder or name `config.name`.

    Raises:
        ModelError: The engine fails to start; its output shows the cause.
        MissingDependency: vLLM is not installed.
    """
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")  # standard output is for results
    try:
        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM
    except ImportError as error:
        raise MissingDependency(
            f"the model {config.model!r} needs the package vllm ({error}); install it as its "
            "documentation describes"
        ) from error
    from transformers import AutoTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(config.name)
        args = AsyncEngineArgs(
            model=config.name, max_model_len=config.max_total_tokens, max_num_seqs=config.concurrency
        )
        engine = AsyncLLM.from_engine_args(args)
    except Exception as error:  # vLLM's loaders raise many kinds of errors
        raise ModelError(
            f"{config.name}: vLLM failed to start ({' '.join(str(error).split())[:300]})"
        ) from error
    context = make_context(config, tokenizer, stop_ids=engine_stop_ids(tokenizer))
    policy = VllmPolicy(
        engine,
        stop_ids=response_stops(context, tokenizer).all,
        temperature=config.temperature,
        top_p=config.top_p,
        seed=config.seed,
    )
    return PolicySetup(policy, context, tokenizer, engine.model_config.max_model_len)
