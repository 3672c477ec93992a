"""A script of answers, and a wrapper that gives each task a distinct prompt; for tests.

The script replaces the model, not the engine: each trainer's harness queries it where its engine would
sample. ``GEM_SCRIPT`` names the file.
"""

from __future__ import annotations

import json
import os
import zlib
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from gem_core import Env, Wrapper, register_wrapper


class Answer(NamedTuple):
    """Answer of the engine to a prompt."""

    token_ids: list[int]
    logprobs: list[float]
    """Log-probs under the shared model."""
    finish_reason: str


class NotInScript(KeyError):
    """Raised when a trainer sends a prompt that gem_core would not send."""


class Script:
    """Answers by prompt; the samples of a group, which share a prompt, get the answers in turn.

    A prompt that is not in the script is an error, because gem_core would not build it. The answers of "*",
    if there are any, are for all prompts, of which each always gets the same.
    """

    def __init__(self, path: str | Path) -> None:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        self._answers = {prompt: [Answer(*answer) for answer in many] for prompt, many in found.items()}
        self._asked: Counter[str] = Counter()

    def answer(self, prompt_ids: list[int], max_tokens: int) -> Answer:
        """Return the next answer to this prompt, cut to `max_tokens` like in an engine."""
        key = prompt_key(prompt_ids)
        if "*" in self._answers:
            many = self._answers["*"]
            return many[zlib.crc32(key.encode()) % len(many)]
        if key not in self._answers:
            raise NotInScript(f"the script has no answer to a prompt of {len(prompt_ids)} tokens: {key}")
        many = self._answers[key]
        answer = many[self._asked[key] % len(many)]
        self._asked[key] += 1
        if len(answer.token_ids) > max_tokens:
            return Answer(answer.token_ids[:max_tokens], answer.logprobs[:max_tokens], "length")
        return answer

    @classmethod
    def from_environment(cls) -> Script | None:
        """Return the script in ``GEM_SCRIPT``; None if the variable is not set."""
        path = os.environ.get("GEM_SCRIPT")
        return cls(path) if path else None


def scripted_vllm(script: Script) -> Any:
    """Return a replacement for ``AsyncLLM.generate`` with vLLM's own outputs and the answers of a script."""
    from vllm.outputs import CompletionOutput, RequestOutput

    async def generate(
        self: Any, prompt: Any, sampling_params: Any, request_id: str, *args: Any, **kwargs: Any
    ) -> Any:
        answer = script.answer(list(prompt["prompt_token_ids"]), sampling_params.max_tokens)
        logprobs = [
            {token: SimpleNamespace(logprob=logprob)}
            for token, logprob in zip(answer.token_ids, answer.logprobs, strict=True)
        ]
        sample = CompletionOutput(
            index=0,
            text="",
            token_ids=answer.token_ids,
            cumulative_logprob=None,
            logprobs=None if sampling_params.logprobs is None else logprobs,
            finish_reason=answer.finish_reason,
        )
        yield RequestOutput(request_id, None, list(prompt["prompt_token_ids"]), None, [sample], True)

    return generate


def prompt_key(prompt_ids: list[int]) -> str:
    return " ".join(map(str, prompt_ids))


class Named(Wrapper):
    """Puts ``Task <seed>.`` before the first observation, because GEM's games begin with the same words."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.task = ""

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        self.task = str(seed)
        return super().reset(seed, options=options)

    def on_reset(self, observation: Any, info: Any) -> Any:
        return f"Task {self.task}.\n{observation}", info


def register() -> None:
    """Register the wrapper."""
    register_wrapper("named", f"{__name__}:Named")
