"""A system prompt, a variable of the chat template, and limits, which a run must pass on to its engine."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tests.trainers.evidence import played

SYSTEM = "Briefly."
TEMPLATE_KWARGS = {"mark": "Mark!"}
MAX_TURNS = 3
MAX_TOKENS = 6
"""Maximum number of tokens of a response; the tiny model's are often longer."""


def marked_model(model: Path, folder: Path) -> Path:
    """Return a copy of a tiny model whose chat template writes the variable "mark" first."""
    from transformers import AutoTokenizer

    copy = Path(shutil.copytree(model, folder / "marked"))
    tokenizer = AutoTokenizer.from_pretrained(copy)
    tokenizer.chat_template = "{{ mark }}" + tokenizer.chat_template
    (copy / "chat_template.jinja").unlink(
        missing_ok=True
    )  # older versions of transformers write no such file
    tokenizer.save_pretrained(copy)
    return copy


def counting_template(model: Path, folder: Path) -> str:
    """Return a file with a model's chat template that counts the messages: no prompt extends another one."""
    from transformers import AutoTokenizer

    template, end = AutoTokenizer.from_pretrained(model).chat_template, "{% endfor %}"
    assert template.count(end) == 1
    path = folder / "counting.jinja"
    path.write_text(template.replace(end, end + "{{ messages | length }}"))
    return str(path)


def assert_options_reach_the_engine(spy: Path, tokenizer: Any) -> None:
    """Check all requests of a run with these options, except those of its evaluations."""
    episodes = played(spy, tokenizer).values()
    start = f"{TEMPLATE_KWARGS['mark']}<|system|>{SYSTEM}<|end|>"
    requests = [request for episode in episodes for request in episode.requests]
    assert all(tokenizer.decode(request["prompt"]).startswith(start) for request in requests)
    assert max(len(episode.rewards) for episode in episodes) == MAX_TURNS
    assert max(len(request["response"]) for request in requests) == MAX_TOKENS
