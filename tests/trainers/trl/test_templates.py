"""The ends of answers in the chat templates that TRL ships, with their own special tokens."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from gem_chat import AppendContext, RebuildContext
from gem_chat._template_context import TemplateContext
from tests.rollout.tokenizers import bpe_tokenizer

TEMPLATES = sorted(
    Path(str(path))
    for path in (resources.files("trl") / "chat_templates").iterdir()
    if path.name.endswith(".jinja")
)
SPECIAL = re.compile("<[|\uff5c]?[\\w\u2581]+[|\uff5c]?>")
ENDS = {
    "cohere2": "<|END_OF_TURN_TOKEN|>",
    "deepseekv3": "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "gemma3": "<end_of_turn>",
    "gemma4_v5": "<turn|>",
    "glm4moe": "<|user|>",
    "gptoss": "<|return|>",
    "llama3": "<|eot_id|>",
    "muse_glimmer": "<|eot|>",
    "phi3": "<|end|>",
    "qwen3": "<|im_end|>",
    "qwen3_training": "<|im_end|>",
}
"""Tokens that end an answer, as the model cards say; versions of TRL without a template skip its row."""


def tokenizer_of(template: str) -> Any:
    """Return a tokenizer with the special tokens in a template, and an end-of-sequence token of its own."""
    tokenizer = bpe_tokenizer("none", template)
    tokenizer.bos_token = "<|endoftext|>"
    tokenizer.add_tokens(sorted({*SPECIAL.findall(template)}), special_tokens=True)
    return tokenizer


def end_of(kind: Any, path: Path) -> str:
    tokenizer = tokenizer_of(path.read_text(encoding="utf-8"))
    end = kind(tokenizer).extra_stop_id({tokenizer.eos_token_id})
    return str(tokenizer.decode([end])) if end is not None else "the engine's own"


@pytest.mark.parametrize("kind", [AppendContext, RebuildContext])
def test_an_engine_stops_at_the_token_that_ends_an_answer(kind: Any) -> None:
    known = {path.stem: path for path in TEMPLATES if path.stem in ENDS}
    assert len(known) >= 6
    assert {name: end_of(kind, path) for name, path in known.items()} == {name: ENDS[name] for name in known}


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_a_rendered_history_has_the_tokens_of_the_template(path: Path) -> None:
    """The model answers as the template writes its newest answer, with a thought where it shows one."""
    tokenizer = tokenizer_of(path.read_text(encoding="utf-8"))
    context = TemplateContext(tokenizer, native_tools=False)
    form = context.conversations.thoughts
    messages: list[dict[str, Any]] = []
    response: list[int] = []
    for number, (question, answer) in enumerate(
        [("Guess.", "Alpha 17"), ("too\nhigh", "(27)"), ("3?", "53")]
    ):
        ids = context.extend(question, response) if number else context.first(question)
        messages.append({"role": "user", "content": question})
        text = rendered(tokenizer, messages, add_generation_prompt=True)
        assert ids == tokenizer.encode(text, add_special_tokens=False)
        said: dict[str, Any] = {"role": "assistant", "content": answer}
        said |= {} if form.in_text else form.fields(f"thought {number}", answer)
        whole = rendered(tokenizer, [*messages, said])
        if not whole.startswith(text):  # it writes something else before this answer
            said = {"role": "assistant", "content": answer}
            whole = text + answer
        before, _, after = whole[len(text) :].rpartition(answer)
        ends = [tokenizer.decode([end]) for end in context._end.stops]
        places = [after.find(end) + len(end) for end in ends if end in after]
        response = tokenizer.encode(
            before + answer + after[: min(places, default=0)], add_special_tokens=False
        )
        messages.append(said)


def rendered(tokenizer: Any, messages: list[dict[str, Any]], **options: Any) -> str:
    """Return the text of messages, with contents in parts for a template that takes no text."""
    in_parts = [
        {**message, "content": [{"type": "text", "text": message["content"]}]} for message in messages
    ]
    text = ""
    for given in (messages, in_parts):
        try:
            text = tokenizer.apply_chat_template(given, tokenize=False, **options)
        except Exception:
            continue
        if all(message["content"] in text for message in messages[:1]):
            return str(text)
    return str(text)
