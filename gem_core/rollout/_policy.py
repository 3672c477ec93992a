"""`Policy`: the interface through which a rollout uses a trainer's inference engine."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from gem_core._core import Env
from gem_core.rollout._messages import ChatPolicy
from gem_core.rollout._turn import FinishReason


class Generation(NamedTuple):
    """The response that an engine sampled for one prompt."""

    token_ids: list[int]
    """Sampled ids, including the end-of-turn token if it was sampled. May be empty."""
    logprobs: list[float] | None
    """Log-probability of each token under the sampling distribution; None if not available."""
    finish_reason: FinishReason
    """"stop" for an end-of-turn token or stop string, "length" for the token limit."""


def inferred_finish(token_ids: Sequence[int], max_tokens: int, stop_ids: Collection[int]) -> FinishReason:
    """Infer from the tokens why a response ended, for an engine that does not report it.

    Args:
        token_ids: The response. An empty response, such as the response of an aborted request, does not count
            as cut.
        max_tokens: Token limit under which the response was sampled.
        stop_ids: Tokens that end a response.
    """
    full = bool(token_ids) and len(token_ids) >= max_tokens
    return "length" if full and token_ids[-1] not in stop_ids else "stop"


class Policy(Protocol):
    """Interface of an inference engine: prompt ids in, sampled ids out.

    A policy with a vision-language model sets ``takes_images = True``, and its `generate` has a further
    argument, ``images: Sequence[str] = ()``: the data URLs of the images whose placeholders are in the
    prompt, in order. The argument is passed only if there are images.

    A policy that can stop at texts sets ``takes_stop = True``, and its `generate` has a further argument,
    ``stop: Sequence[str] = ()``: a response ends with the first token with which it holds one of them. Only
    the agents of a gateway ask for it.

    A policy that keeps state by request id, such as a KV cache, has a method ``forget_request(request_id)``,
    which is called when the episode has ended.
    """

    async def generate(self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str) -> Generation:
        """Sample one response.

        Args:
            prompt_ids: Token ids of the whole context, including all turns so far.
            max_tokens: Maximum number of tokens in this response.
            request_id: Id that is the same for all turns of an episode, so an engine can route them to the
                replica that holds the prefix cache. Several requests with one id may run at the same time,
                and each is a sample of its own.
        """
        ...


class EnvPolicy(Protocol):
    """Interface of a player that sees the environment itself, such as `gem_chat.EnvPlayer`."""

    def bind(self, env: Env, stream: str | None = None, *, named: bool = True) -> ChatPolicy:
        """Return the policy for one episode.

        Args:
            env: The environment of the episode.
            stream: Name of the random stream of the episode, its request id.
            named: Whether the caller of `run_episode` chose that name.
        """
        ...
