"""Tokens at which inference engines stop by default."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from gem_core.rollout.context import Context


def engine_stop_ids(tokenizer: Any) -> set[int]:
    """Return the ids at which vLLM and SGLang end a response by default.

    These are the end-of-sequence token of the tokenizer and the ones in the model's
    ``generation_config.json``. If a context has another end-of-turn token, it must be passed to the engine as
    an extra stop token.

    Args:
        tokenizer: A transformers tokenizer; the generation config is read from its ``name_or_path``.
    """
    from transformers import GenerationConfig

    ids = {tokenizer.eos_token_id}
    try:
        more = GenerationConfig.from_pretrained(tokenizer.name_or_path).eos_token_id
    except (OSError, ValueError):  # the model has no generation config
        more = None
    ids |= set(more) if isinstance(more, list) else {more}
    return {token_id for token_id in ids if token_id is not None}


def extra_stop_id(context: Context, stop_ids: Collection[int]) -> int | None:
    """Return the context's end-of-turn token if it is not among the engine's `stop_ids`, else None."""
    end: int | None = getattr(context, "end_of_turn_id", None)
    return None if end is None or end in stop_ids else end
