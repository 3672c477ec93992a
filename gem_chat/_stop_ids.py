"""Tokens that end a response."""

from __future__ import annotations

from typing import Any, NamedTuple

from gem_chat._conversation import TokenContext
from gem_core.errors import ConfigError


def engine_stop_ids(tokenizer: Any) -> frozenset[int]:
    """Return the ids at which vLLM and SGLang end a response by default.

    These are the end-of-sequence token of the tokenizer and the ones in the model's
    ``generation_config.json``.

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
    return frozenset(token_id for token_id in ids if token_id is not None and token_id >= 0)


class ResponseStops(NamedTuple):
    """The tokens that end a response.

    Attributes:
        known: Tokens at which engines stop by default.
        extra: Stop token after an answer that has to be passed to an engine in addition; None for none.
        call: The same after native calls.
    """

    known: frozenset[int]
    extra: int | None
    call: int | None

    @property
    def all(self) -> frozenset[int]:
        """All of them."""
        added = (self.extra, self.call)
        return self.known | {token_id for token_id in added if token_id is not None}


def response_stops(context: TokenContext, tokenizer: Any) -> ResponseStops:
    """Return the tokens that end a response in a context.

    Args:
        context: A context of either mode.
        tokenizer: A transformers tokenizer.

    Raises:
        UnsupportedTemplate: The chat template does not tell where an answer ends.
        ConfigError: No token ends a response.
    """
    known = engine_stop_ids(tokenizer)
    stops = ResponseStops(known, context.extra_stop_id(known), None)
    stops = stops._replace(call=context.call_stop_id(stops.all))
    if not stops.all:
        raise ConfigError(
            "no token ends a response: the chat template ends an answer with plain text, the tokenizer has "
            "no eos_token, and the model's generation_config.json no eos_token_id; set one of the two"
        )
    return stops
