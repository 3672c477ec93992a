"""What the errors of endpoints mean: a conversation that is too long, in the words of each server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_TOO_LARGE = 413
_RATE_LIMIT = 429

_WHOLE = r"(?:prompt|inputs?|request(?: body)?|conversation|messages?|payload|entity)"
_EXCEEDS = (
    r"(?:exceed(?:s|ed|ing)?|(?:is |are )?(?:longer|larger|greater) than|"
    r"must be (?:less|shorter|smaller) than)"
)
_WORDS = re.compile(
    "|".join(
        (
            # OpenAI, Azure, vLLM, SGLang, DeepSeek, OpenRouter, LiteLLM, Groq, Cerebras, Ollama, llama.cpp
            r"context[ _-]?(?:length|window|size|limit)",
            r"max(?:imum)?[ _]context",
            r"max_model_len",
            r"\bn_ctx\b",
            r"first \d+ tokens when context",
            r"string_above_max_length|string too long",
            r"reduce (?:the length|your prompt|the (?:prompt|input))|shorten (?:the|your)",
            # Anthropic, Fireworks, Bedrock, proxies
            rf"{_WHOLE}`? (?:is |are |was )?too (?:long|large|big)",
            # TGI, Together
            r"`?inputs`? tokens \+ `?max_new_tokens`? must be <=",
            r"`?inputs`? must have less than",
            # Mistral, Cohere, Moonshot, Qwen, xAI
            r"too (?:many tokens|large for model)",
            r"model token limit|range of input length|maximum prompt length",
            # Gemini, vLLM, TensorRT-LLM, NIM
            rf"(?:{_WHOLE}|sequence|requested)[\w ()'`,.-]{{0,60}}? {_EXCEEDS}"
            r"[\w ()'`,.-]{0,40}?(?:max|limit|length|tokens|allowed)",
            r"max_(?:input|seq|num|prompt)_(?:len|tokens|length)",
        )
    )
)
_RATE = re.compile(r"per (?:minute|min|day|hour|second)|rate[ _]limit|tpm\b|try again|please wait|slow down")


def is_too_long(status: int | None, text: str) -> bool:
    """Return whether an error says that the conversation is too long for the model.

    Args:
        status: HTTP status; None for an error in a response with status 200.
        text: Everything that the response says, in any form.
    """
    words = " ".join(text.lower().split())
    if status == _TOO_LARGE:
        return True
    if status == _RATE_LIMIT:  # a single request above the limit of a minute fails however long one waits
        return "request too large" in words
    return _WORDS.search(words) is not None and not (status is None and _RATE.search(words))


def everything_said(error: Exception) -> str:
    """Return the texts of an error: its message, its code, and the whole body."""
    response = getattr(error, "response", None)
    parts = [str(error), str(getattr(error, "code", None) or ""), str(getattr(response, "text", "") or "")]
    return " ".join([*parts, *_texts(getattr(error, "body", None))])


def _texts(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [text for inner in value.values() for text in _texts(inner)]
    if isinstance(value, list | tuple):
        return [text for inner in value for text in _texts(inner)]
    return [value] if isinstance(value, str) else []
