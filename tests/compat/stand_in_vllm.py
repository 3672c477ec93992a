"""A stand-in for the part of vLLM's interface that GEM's evaluation functions use; it loads no model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any


class StandInTokenizer:
    """A chat template that changes nothing, and one token per byte."""

    def apply_chat_template(self, messages: Sequence[dict[str, str]], **kwargs: Any) -> str:
        return "".join(message["content"] for message in messages)

    def encode(self, text: str) -> list[int]:
        return list(text.encode())


class StandInLLM:
    """Answers prompts with a function."""

    def __init__(self, answer: Callable[[str], str]) -> None:
        self.answer = answer

    def get_tokenizer(self) -> StandInTokenizer:
        return StandInTokenizer()

    def generate(self, prompts: Sequence[str], **kwargs: Any) -> list[SimpleNamespace]:
        texts = [self.answer(prompt) for prompt in prompts]
        return [SimpleNamespace(outputs=[SimpleNamespace(text=text, token_ids=[0])]) for text in texts]
