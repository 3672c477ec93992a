"""The one thing a trainer supplies to a rollout: a `Policy` that turns prompt ids into token ids."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from gem_core.rollout.trajectory import FinishReason


class Generation(NamedTuple):
    """What an engine sampled for one prompt."""

    token_ids: list[int]
    """Sampled ids, the end-of-turn token included when it was sampled. May be empty."""
    logprobs: list[float] | None
    """One per token, under the sampling distribution; None when not asked for."""
    finish_reason: FinishReason
    """"stop" for an end-of-turn token or stop string, "length" for the token limit."""


def reported_finish(reason: str | None) -> FinishReason:
    """Translate the finish reason of an engine that reports reliably, such as vLLM.

    Only "stop" is a response that ended. An aborted one is incomplete, so it counts as cut.
    """
    return "stop" if reason == "stop" else "length"


def inferred_finish(token_ids: Sequence[int], max_tokens: int, stop_ids: Collection[int]) -> FinishReason:
    """Tell from the tokens why a response ended, for an engine that does not report it.

    Args:
        token_ids: The response. An empty one, such as that of an aborted request, was not cut.
        max_tokens: Limit under which it was sampled.
        stop_ids: Tokens that end a response.
    """
    full = bool(token_ids) and len(token_ids) >= max_tokens
    return "length" if full and token_ids[-1] not in stop_ids else "stop"


class Policy(Protocol):
    """An inference engine, seen from the runner.

    One with a vision-language model says so, ``takes_images = True``, and its `generate` has one more
    argument, ``images: Sequence[str] = ()``: the data URLs of the images whose places are in the prompt,
    in order. It is given only where there are images.
    """

    async def generate(self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str) -> Generation:
        """Sample one response.

        Args:
            prompt_ids: The whole context, all turns so far.
            max_tokens: Upper limit for this response.
            request_id: The same for all turns of an episode, so that an engine can route it to
                the replica that holds its prefix cache.
        """
        ...
