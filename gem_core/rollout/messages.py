"""Episodes in messages instead of tokens: for HTTP endpoints and for players without a model.

    context = MessagesContext(system_prompt="You play games.")
    episode = await run_episode(env, chat_policy, context, seed=0)

Such an episode holds no tokens (`Episode.context_mode` is "messages"). It can be evaluated, read, and
compared, but not trained on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, get_args

from gem_core._util.checks import check_choice
from gem_core._util.seeds import derive_seed, seed_bytes
from gem_core.core import Env, Observation
from gem_core.errors import ConfigError, GemError, ServiceError
from gem_core.observations import readable_text
from gem_core.rollout.trajectory import ContextMode
from gem_core.rollout.turn import FinishReason
from gem_core.special_tokens import Nested, count_known, map_texts, separate_known

Message: TypeAlias = dict[str, Any]
"""``{"role": ..., "content": ...}`` as in the OpenAI API; see `gem_core.rollout.native_tools` for calls."""

SILENCE = "(no answer)"
"""Replaces an empty answer in the conversation, because many endpoints reject empty messages."""


class ContextFull(GemError, ValueError):
    """Raised when the conversation exceeds the model's context; the runner then ends the episode."""


class RequestRejected(ServiceError):
    """Raised when a model rejects one conversation but answers others; the runner then ends the episode."""


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


class MessagesContext:
    """A context that keeps the conversation as messages instead of tokens.

    Args:
        system_prompt: First message of each conversation; None for no system message.
        native_tools: Whether the policy receives the schemas of the environment's tools, and conversations
            hold native tool calls. The first observation then does not explain the tools.
        parse_special: Whether a control token that an observation or a schema spells, such as ``<|im_end|>``,
            is sent unchanged. By default, a word joiner (U+2060) in it keeps a server from parsing it; see
            `gem_core.special_tokens.separate_known`.
    """

    mode: ContextMode = "messages"

    def __init__(
        self, *, system_prompt: str | None = None, native_tools: bool = False, parse_special: bool = False
    ) -> None:
        self._system_prompt = system_prompt
        self.native_tools = native_tools
        self._parse_special = parse_special

    def first(self, observation: Observation) -> list[Message]:
        """Return the conversation before the first answer."""
        system = [] if self._system_prompt is None else [{"role": "system", "content": self._system_prompt}]
        return [*system, {"role": "user", "content": self.guarded(observation)}]

    def extend(self, observation: Observation, answer: str) -> list[Message]:
        """Return the two messages that a turn adds: the answer and the environment's observation."""
        return [
            {"role": "assistant", "content": answer or SILENCE},
            {"role": "user", "content": self.guarded(observation)},
        ]

    def guarded(self, value: Nested) -> Nested:
        """Return an observation or schemas whose texts spell no control token, unless they may."""
        return value if self._parse_special else map_texts(separate_known, value)

    def count_spelled(self, observation: Observation) -> int:
        """Return the number of control tokens that the texts of an observation spell."""
        return count_known(readable_text(observation))


PlayerKind: TypeAlias = Literal["random", "oracle"]


class EnvPlayer:
    """A player without a model: takes random legal actions, or the environment's own best actions.

    The runner binds it to the environment of each episode. The player draws from a stream of its own, which
    the start of the episode and `request_id` determine: episodes with the same seed and different request
    ids are different samples. Without a request id, random actions differ from call to call, and best
    actions follow the seed alone.

    Args:
        kind: "random" for random legal actions, "oracle" for the environment's best actions.
    """

    def __init__(self, kind: PlayerKind) -> None:
        self.kind = check_choice("kind", kind, get_args(PlayerKind))

    def bind(self, env: Env, stream: str | None = None) -> ChatPolicy:
        """Return the policy for one episode.

        Args:
            env: The environment of the episode.
            stream: Name of the player's random stream within `env.action_random`; None lets the player draw
                from `env.action_random` itself.
        """
        return _Bound(self.kind, env, stream)


class _Bound:
    def __init__(self, kind: PlayerKind, env: Env, stream: str | None) -> None:
        self._kind = kind
        self._env = env
        self._stream = stream

    async def reply(self, messages: list[Message], *, max_tokens: int, request_id: str) -> ChatReply:
        if self._stream is not None:
            own = self._env.action_random
            own.seed(seed_bytes(derive_seed("player", own.getrandbits(64), self._stream)))
            self._stream = None
        if self._kind == "oracle":
            action = self._env.oracle_action()
            if action is None:
                raise ConfigError(f"{self._env!r} has no oracle action, so the oracle cannot play it")
            return ChatReply(action)
        try:
            return ChatReply(self._env.sample_random_action())
        except NotImplementedError as error:
            raise ConfigError(f"{self._env!r} has no random actions: {error}") from error
