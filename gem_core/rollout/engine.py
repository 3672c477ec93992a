"""What an inference engine does by itself, which a policy on top of it has to know."""

from __future__ import annotations

from typing import Any

from gem_core.rollout.context import Context
from gem_core.rollout.policy import Generation, reported_finish


def engine_stop_ids(tokenizer: Any) -> set[int]:
    """The ids at which vLLM and SGLang end a response by themselves.

    These are the end-of-sequence token of the tokenizer and those of the model's
    ``generation_config.json``. A context whose end-of-turn token is none of them needs it as a stop
    token of its own.

    Args:
        tokenizer: Of transformers; its ``name_or_path`` is where the generation config is looked for.
    """
    from transformers import GenerationConfig

    ids = {tokenizer.eos_token_id}
    try:
        more = GenerationConfig.from_pretrained(tokenizer.name_or_path).eos_token_id
    except (OSError, ValueError):  # a model without one
        more = None
    ids |= set(more) if isinstance(more, list) else {more}
    return {token_id for token_id in ids if token_id is not None}


def extra_stop_id(context: Context, tokenizer: Any) -> int | None:
    """The context's end-of-turn token where an engine would not stop at it by itself, else None."""
    end: int | None = getattr(context, "end_of_turn_id", None)
    return None if end is None or end in engine_stop_ids(tokenizer) else end


def vllm_generation(output: Any) -> Generation:
    """What a vLLM `RequestOutput` with one sample says; sampled with ``logprobs=1``."""
    (sample,) = output.outputs
    ids = list(sample.token_ids)
    logprobs = [float(step[token_id].logprob) for token_id, step in zip(ids, sample.logprobs, strict=True)]
    return Generation(ids, logprobs, reported_finish(sample.finish_reason))
