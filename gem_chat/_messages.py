"""Episodes in messages instead of tokens: for HTTP endpoints and for players without a model.

    context = MessagesContext(system_prompt="You play games.")
    episode = await run_episode(env, chat_policy, context, seed=0)

Such an episode holds no tokens (`Episode.context_mode` is "messages"). It can be evaluated, read, and
compared, but not trained on.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

from gem_chat._native_tools import SILENCE, NativeTools, hide_instructions, notes_of
from gem_chat._special_tokens import Nested, count_known, map_texts, separate_known
from gem_core import Env, Observation
from gem_core._observations import encodable, readable_text
from gem_core._util.checks import check_choice
from gem_core._util.seeds import derive_seed, seed_bytes
from gem_core.errors import ConfigError
from gem_core.rollout import ChatPolicy, ChatReply
from gem_core.rollout._dialogue import Answer, Dialogue, TokenLimits
from gem_core.rollout._messages import Message
from gem_core.rollout._trajectory import ContextMode


class MessagesContext:
    """A context that keeps the conversation as messages instead of tokens.

    Args:
        system_prompt: First message of each conversation; None for no system message.
        native_tools: Whether the policy receives the schemas of the environment's tools, and conversations
            hold native tool calls. The first observation then does not explain the tools.
        parse_special: Whether a control token that an observation or a schema spells, such as ``<|im_end|>``,
            is sent unchanged. By default, a word joiner (U+2060) in it keeps a server from parsing it; see
            `gem_chat._special_tokens.separate_known`.
    """

    mode: ContextMode = "messages"

    def __init__(
        self, *, system_prompt: str | None = None, native_tools: bool = False, parse_special: bool = False
    ) -> None:
        self._system_prompt = system_prompt
        self.native_tools = native_tools
        self._parse_special = parse_special

    def require_images(self, env: Env, policy: Any | None) -> None:
        """Accept every environment: messages hold images as they are."""

    def dialogue(self, env: Env, policy: Any, limits: TokenLimits, request_id: str) -> Dialogue:
        """Return the conversation of one episode; see `gem_core.rollout.Context`."""
        if not hasattr(policy, "reply"):
            raise ConfigError(f"{type(policy).__name__} takes tokens; give it a context that produces tokens")
        return MessageDialogue(env, policy, self, limits, request_id)

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

    def bind(self, env: Env, stream: str | None = None, *, named: bool = True) -> ChatPolicy:
        """Return the policy for one episode.

        Args:
            env: The environment of the episode.
            stream: Name of the player's random stream within `env.action_random`; None lets the player draw
                from `env.action_random` itself.
            named: Whether a caller chose that name; best actions do not use another one.
        """
        return _Bound(self.kind, env, stream if named or self.kind == "random" else None)


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


class MessageDialogue:
    """A conversation with a `ChatPolicy`: messages in, text out."""

    _tools: NativeTools

    def __init__(
        self, env: Env, policy: ChatPolicy, context: MessagesContext, limits: TokenLimits, request_id: str
    ) -> None:
        self._env = env
        self._policy = policy
        self._context = context
        if context.native_tools:
            hide_instructions(env)
        self._limits = limits
        self._request_id = request_id
        self._messages: list[Message] = []
        self._last = ChatReply("")
        self._last_action = ""
        self._forged_tokens = 0

    def begin(self, observation: Observation) -> str | None:
        self._tools = NativeTools(self._env, self._context.native_tools)
        self._forged_tokens = self._context.count_spelled(observation)
        self._messages = self._context.first(observation)
        return None

    async def answer(self) -> Answer | None:
        assert self._limits.per_turn is not None  # the only limit that an episode in messages has
        schemas = self._context.guarded(self._tools.schemas)
        offered: dict[str, Any] = {"tools": schemas} if schemas else {}
        reply = await self._policy.reply(
            list(self._messages), max_tokens=self._limits.per_turn, request_id=self._request_id, **offered
        )
        self._last = reply = reply._replace(text=encodable(reply.text))  # sent to the endpoint again
        self._last_action = text = encodable(self._tools.action(reply))
        counts = {"prompt_tokens": reply.prompt_tokens, "response_tokens": reply.response_tokens}
        notes: dict[str, Any] = {name: count for name, count in counts.items() if count is not None}
        notes |= {**reply.notes, **notes_of(reply.tool_calls)}
        return Answer(text, reply.finish_reason, -1, [], [], None, notes, self._forged_tokens)

    def observe(self, observation: Observation) -> bool:
        self._forged_tokens = self._context.count_spelled(observation)
        added = self._tools.messages(self._last, observation)
        if added is not None:
            said, *results = added
            added = [
                said,
                *({**message, "content": self._context.guarded(message["content"])} for message in results),
            ]
        else:
            added = self._context.extend(observation, self._last_action)
        self._messages += added
        return True
