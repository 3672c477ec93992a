"""The one thing a trainer supplies to a rollout: a `Policy` that turns prompt ids into token ids."""

from __future__ import annotations

from collections.abc import Sequence
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
