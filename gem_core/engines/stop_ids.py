"""Tokens at which inference engines stop by themselves."""

from __future__ import annotations

from typing import Any

from gem_core.rollout.context import Context


def engine_stop_ids(tokenizer: Any) -> set[int]:
    """Return the ids at which vLLM and SGLang end a response by themselves.

    These are the end-of-sequence token of the tokenizer and those of the model's
    ``generation_config.json``. A context with another end-of-turn token must pass it to the
    engine as an extra stop token.

    Args:
        tokenizer: A tokenizer of transformers; the generation config is read from its ``name_or_path``.
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
    """Return the context's end-of-turn token if an engine does not stop at it by itself, else None."""
    end: int | None = getattr(context, "end_of_turn_id", None)
    return None if end is None or end in engine_stop_ids(tokenizer) else end
