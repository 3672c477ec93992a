"""Episodes with a model that takes messages and gives text: an endpoint, or a player without a model.

    context = MessagesContext(system_prompt="You play games.")
    episode = await run_episode(env, chat_policy, context, seed=0)

Such an episode holds no tokens (`Episode.context_mode` is "messages"), so it can be evaluated, read and
compared, and not be trained on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from gem_core.core import Env, Observation
from gem_core.errors import ConfigError, GemError
from gem_core.rollout.trajectory import ContextMode, FinishReason

Message: TypeAlias = dict[str, Any]
"""``{"role": ..., "content": ...}`` as in the OpenAI API."""

SILENCE = "(no answer)"
"""Stands in the conversation for an empty answer, which many endpoints refuse to be shown."""


class ContextFull(GemError, ValueError):
    """The conversation is longer than the model's context; the runner ends the episode."""


class ChatReply(NamedTuple):
    """What a model answered."""

    text: str
    finish_reason: FinishReason = "stop"
    prompt_tokens: int | None = None
    """Of the whole conversation before the answer; None when nobody counted."""
    response_tokens: int | None = None
    notes: Mapping[str, Any] = {}
    """More that belongs into the trace, such as the reasoning that an endpoint reports."""


class ChatPolicy(Protocol):
    """A model, seen from the runner, that takes messages."""

    async def reply(self, messages: list[Message], *, max_tokens: int, request_id: str) -> ChatReply:
        """Answer the last message.

        Args:
            messages: The whole conversation, not to be changed.
            max_tokens: Upper limit for this answer.
            request_id: The same for all turns of an episode.

        Raises:
            ContextFull: The conversation is too long for the model.
        """
        ...


class MessagesContext:
    """Keeps a conversation as messages instead of tokens.

    Args:
        system_prompt: First message of each conversation; None for none.
    """

    mode: ContextMode = "messages"

    def __init__(self, *, system_prompt: str | None = None) -> None:
        self._system_prompt = system_prompt

    def first(self, observation: Observation) -> list[Message]:
        """The conversation before the first answer."""
        system = [] if self._system_prompt is None else [{"role": "system", "content": self._system_prompt}]
        return [*system, {"role": "user", "content": observation}]

    def extend(self, observation: Observation, answer: str) -> list[Message]:
        """The messages that an answer and what the environment said to it add."""
        return [
            {"role": "assistant", "content": answer or SILENCE},
            {"role": "user", "content": observation},
        ]


PlayerKind: TypeAlias = Literal["random", "oracle"]


class EnvPlayer:
    """Plays without a model: random legal actions, or the environment's own best ones.

    The runner binds it to the environment of each episode.

    Args:
        kind: "random" or "oracle".
    """

    def __init__(self, kind: PlayerKind) -> None:
        if kind not in ("random", "oracle"):
            raise ConfigError(f"a player is 'random' or 'oracle', not {kind!r}")
        self.kind = kind

    def bind(self, env: Env) -> ChatPolicy:
        """The policy for one episode of `env`."""
        return _Bound(self.kind, env)


class _Bound:
    def __init__(self, kind: PlayerKind, env: Env) -> None:
        self._kind = kind
        self._env = env
        self._seeded = False

    async def reply(self, messages: list[Message], *, max_tokens: int, request_id: str) -> ChatReply:
        if self._kind == "oracle":
            action = self._env.oracle_action()
            if action is None:
                raise ConfigError(f"{self._env!r} knows no best action; the oracle cannot play it")
            return ChatReply(action)
        if not self._seeded:  # so that two episodes of one seed are two samples
            self._env.action_random.seed(request_id)
            self._seeded = True
        try:
            return ChatReply(self._env.sample_random_action())
        except NotImplementedError as error:
            raise ConfigError(f"{self._env!r} has no random actions: {error}") from error
