"""The opening of an answer, which some chat templates write although none is asked for."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

_QUESTION, _ANSWER = "neutral question 8846", "Neutral-reply-1593"


def with_asked_openings(render: Callable[..., str], tokenizer: Any) -> Callable[..., str]:
    """Return a function that writes the opening of an answer at the end of a text only if one is asked for.

    The template of Command R7B ignores ``add_generation_prompt``: each of its texts ends with
    ``<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>``, which is no part of the message before it.

    Args:
        render: Function from messages, and ``generate`` for whether an answer is asked for, to text.
        tokenizer: The tokenizer, whose special tokens are never cut.
    """

    @functools.cache
    def opening() -> str:
        return _unasked_opening(render, tokenizer)

    def asked(messages: Any, *, generate: bool, **options: Any) -> str:
        text = render(messages, generate=generate, **options)
        return text if generate else text.removesuffix(opening())

    return asked


def _unasked_opening(render: Callable[..., str], tokenizer: Any) -> str:
    """Return the opening of an answer that a template writes although none is asked for; empty for most.

    What follows an answer in such a text is the end of the answer, and then the opening. The opening starts
    where the text before another message differs, or at a special token with which a conversation begins.
    """
    asked = [{"role": "user", "content": _QUESTION}]
    answered = [*asked, {"role": "assistant", "content": _ANSWER}]
    try:
        text = render(asked, generate=False)
        if text != render(asked, generate=True):
            return ""
        ended = render(answered, generate=False)
        if ended != render(answered, generate=True):
            return ""
        later = render([*answered, *asked], generate=False)
    except Exception:  # templates are programs; what needs such a conversation reports it
        return ""
    after, between = ended.rpartition(_ANSWER)[2], later.rpartition(_ANSWER)[2]
    end, pattern = len(common_prefix(after, between)), _special_tokens(tokenizer)
    first = _first_tokens(text.partition(_QUESTION)[0], pattern) - {getattr(tokenizer, "eos_token", None)}
    for token in pattern.finditer(after):
        if token[0] in first or token.end() > end:
            end = min(end, token.start())
            break
    return after[end:] if text.endswith(after[end:]) else ""


def common_prefix(one: str, other: str) -> str:
    """Return the text with which both texts begin."""
    pairs = enumerate(zip(one, other, strict=False))
    length = next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))
    return one[:length]


def _special_tokens(tokenizer: Any) -> re.Pattern[str]:
    texts = {str(token) for token in getattr(tokenizer, "added_tokens_decoder", {}).values()}
    texts |= {tokenizer.decode([token_id]) for token_id in getattr(tokenizer, "all_special_ids", ())}
    longest_first = sorted(filter(None, texts), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")


def _first_tokens(text: str, pattern: re.Pattern[str]) -> set[str]:
    """Return the tokens before the first other text."""
    found, text = set(), text.lstrip()
    while token := pattern.match(text):
        found.add(token[0])
        text = text[token.end() :].lstrip()
    return found
