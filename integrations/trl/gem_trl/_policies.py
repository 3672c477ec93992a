"""The model in training as a `gem_core.rollout.Policy`: with transformers, or with vLLM in this process."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from trl.models import unwrap_model_for_generation

from gem_chat import EpisodePlayer
from gem_core.rollout import Policy
from gem_lab._engines.sampling import BatchingPolicy
from gem_lab._engines.vllm import SteppedVllmPolicy

SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


@contextmanager
def open_policy(trainer: Any, player: EpisodePlayer, name: str) -> Iterator[Policy]:
    """Provide the policy of one rollout.

    Args:
        trainer: A `GRPOTrainer`.
        player: The player of the episodes.
        name: Name of the rollout, which determines the random numbers together with TRL's seed.
    """
    args = trainer.args
    if trainer.use_vllm:
        engine = trainer.vllm_generation
        sampling = {name: getattr(engine, name) for name in SAMPLING} | engine.generation_kwargs
        sampling["min_p"] = sampling["min_p"] or 0.0
        sampling |= player.engine_options(sampling)
        yield SteppedVllmPolicy(engine.llm.llm_engine, sampling, seed=args.seed)
        return
    options = {"gather_deepspeed3_params": args.ds3_gather_for_generation}
    if "gradient_checkpointing_kwargs" in inspect.signature(unwrap_model_for_generation).parameters:
        options["gradient_checkpointing_kwargs"] = args.gradient_checkpointing_kwargs
    with (
        unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator, **options) as model,
        torch.no_grad(),
    ):
        ends = model.generation_config.eos_token_id
        policy = BatchingPolicy(
            model,
            eos_token_ids=player.stop_ids | (set(ends) if isinstance(ends, list) else {ends} - {None}),
            pad_token_id=trainer._tokenizer.pad_token_id,
            temperature=trainer.temperature,
            top_p=trainer.top_p,
            top_k=trainer.top_k,
            seed=f"{args.seed}/{name}",
        )
        try:
            yield policy
        finally:
            policy.forget()
