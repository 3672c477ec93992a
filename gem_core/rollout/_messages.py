"""Interface of policies that take messages instead of tokens: HTTP endpoints and players without a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from gem_core.rollout._turn import FinishReason

Message: TypeAlias = dict[str, Any]
"""``{"role": ..., "content": ...}`` as in the OpenAI API; see `gem_chat._native_tools` for calls."""


class ChatReply(NamedTuple):
    """An answer of a model."""

    text: str
    finish_reason: FinishReason = "stop"
    prompt_tokens: int | None = None
    """Number of tokens in the whole conversation before the answer; None if unknown."""
    response_tokens: int | None = None
    """Number of tokens in the answer; None if unknown."""
    notes: Mapping[str, Any] = {}
    """Further entries for the trace, such as the reasoning that an endpoint reports."""
    tool_calls: Sequence[Mapping[str, Any]] = ()
    """Native tool calls, ``{"id", "type": "function", "function": {"name", "arguments": JSON text}}``."""


class ChatPolicy(Protocol):
    """Interface of a model that takes messages and returns text.

    `reply` has a further argument if `MessagesContext.native_tools` is set, ``tools: Sequence[Mapping]``: the
    schemas of the environment's tools. It is passed only if there are tools.
    """

    async def reply(self, messages: list[Message], *, max_tokens: int, request_id: str) -> ChatReply:
        """Answer the last message.

        Args:
            messages: The whole conversation; must not be modified.
            max_tokens: Maximum number of tokens in this answer.
            request_id: Id that is the same for all turns of an episode.

        Raises:
            ContextFull: The conversation is too long for the model.
            RequestRejected: The model rejects this conversation but answers others.
        """
        ...
