"""The model's side of an episode in `run_episode`, in tokens or in messages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from gem_core.core import Observation
from gem_core.errors import PolicyError
from gem_core.images import image_urls
from gem_core.observations import encodable
from gem_core.rollout.conversation import Context
from gem_core.rollout.messages import ChatPolicy, ChatReply, Message, MessagesContext
from gem_core.rollout.native_tools import NativeTools, entries_of, notes_of
from gem_core.rollout.policy import Generation, Policy
from gem_core.rollout.trajectory import ContextMode
from gem_core.rollout.turn import FinishReason, Prompts
from gem_core.tools import ToolCall


class TokenLimits(NamedTuple):
    """Maximum numbers of tokens in an episode; see `run_episode`. At least one of the three is set."""

    per_turn: int | None
    total: int | None = None
    response: int | None = None

    def after(self, prompt_length: int, mode: ContextMode) -> TokenLimits:
        """Return the limits of an episode whose first prompt has `prompt_length` tokens."""
        if self.response is None:
            return self
        if mode == "rebuild":
            return self._replace(per_turn=_least(self.per_turn, self.response))
        return self._replace(total=_least(self.total, prompt_length + self.response))

    def room(self, prompt_ids: list[int]) -> int:
        """Return the maximum number of tokens in the response to this prompt; below 1 if none fits."""
        return _least(self.per_turn, None if self.total is None else self.total - len(prompt_ids))


def _least(*limits: int | None) -> int:
    return min(limit for limit in limits if limit is not None)


class Answer(NamedTuple):
    """One response of the model."""

    text: str
    finish_reason: FinishReason
    parent: int | None
    """`Turn.parent`."""
    context_ids: list[int]
    response_ids: list[int]
    logprobs: list[float] | None
    notes: Mapping[str, Any]
    forged_tokens: int = 0
    """Number of special tokens that the texts of the observation before it spell."""


class Dialogue(Protocol):
    """The conversation of one episode."""

    def begin(self, observation: Observation) -> str | None:
        """Add the first observation; return an error message if no answer fits the limits, else None."""
        ...

    async def answer(self) -> Answer | None:
        """Return the model's next response; None if it is empty."""
        ...

    def observe(self, observation: Observation) -> bool:
        """Add the next observation; return whether another answer fits the limits."""
        ...


class TokenDialogue:
    """A conversation with a `Policy`: token ids in, token ids out.

    Args:
        policy: The policy.
        context: The context.
        limits: Limits of the episode.
        request_id: Id of the episode.
        tools: Tools of the environment, which the model calls natively if the context has tool turns.
    """

    def __init__(
        self,
        policy: Policy,
        context: Context,
        limits: TokenLimits,
        request_id: str,
        tools: NativeTools,
    ) -> None:
        self._policy = policy
        self._tools = tools
        self._turns = context.with_tools(tools.schemas) if tools.schemas else None
        self._context = context if self._turns is None else self._turns.context
        self._calls: list[ToolCall] = []
        self._limits = limits
        self._request_id = request_id
        self._context_ids: list[int] = []
        self._prompts = Prompts() if context.mode == "rebuild" else None
        self._prompt_ids: list[int] = []
        self._response_ids: list[int] = []
        self._images: list[str] = []
        self._forged_tokens = 0

    def begin(self, observation: Observation) -> str | None:
        self._forged_tokens = self._context.count_spelled(observation)
        self._context_ids = self._context.first(observation)
        self._images = image_urls(observation)
        self._prompt_ids = list(self._context_ids)
        self._limits = self._limits.after(len(self._prompt_ids), self._context.mode)
        if self._limits.room(self._prompt_ids) >= 1:
            return None
        return (
            f"the first prompt has {len(self._prompt_ids)} tokens, which leaves no room for a response in "
            f"max_total_tokens={self._limits.total}; raise max_total_tokens or shorten the prompt"
        )

    async def answer(self) -> Answer | None:
        room = self._limits.room(self._prompt_ids)
        arguments: dict[str, Any] = {"images": list(self._images)} if self._images else {}
        generation = await self._policy.generate(
            list(self._prompt_ids), max_tokens=room, request_id=self._request_id, **arguments
        )
        _check_generation(generation, room)
        self._response_ids = list(generation.token_ids)
        if not self._response_ids:
            return None
        image_processor = self._context.image_processor
        placeholders = {} if image_processor is None else image_processor.placeholders
        for token_id in self._response_ids:
            if token_id in placeholders:
                raise PolicyError(
                    f"the policy sampled the placeholder {placeholders[token_id]!r}, but no image belongs to "
                    "it; forbid that token in the engine (vLLM: logit_bias)"
                )
        parent: int | None = -1
        context_ids = self._context_ids
        if self._prompts is not None:
            parent, context_ids = self._prompts.add(self._prompt_ids, self._response_ids, self._images)
        return Answer(
            text=self._action(),
            finish_reason=generation.finish_reason,
            parent=parent,
            context_ids=context_ids,
            response_ids=self._response_ids,
            logprobs=None if generation.logprobs is None else list(generation.logprobs),
            notes={},
            forged_tokens=self._forged_tokens,
        )

    def _action(self) -> str:
        """Return the response as text, with native calls in the format of the environment."""
        if self._turns is None:
            return self._context.decode(self._response_ids)
        text, self._calls = self._turns.read(self._response_ids, self._tools.tools)
        return encodable(self._tools.action(ChatReply(text, tool_calls=entries_of(self._calls))))

    def observe(self, observation: Observation) -> bool:
        self._forged_tokens = self._context.count_spelled(observation)
        found = self._tools.call_results(self._calls, observation) if self._calls else None
        if found is None or self._turns is None:
            self._context_ids = self._context.extend(observation, self._response_ids)
        else:
            self._context_ids = self._turns.extend(*found, self._response_ids)
        history = [*self._prompt_ids, *self._response_ids] if self._context.mode == "append" else []
        self._prompt_ids = history + self._context_ids
        self._images = (self._images if history else []) + image_urls(observation)
        return self._limits.room(self._prompt_ids) >= 1


class MessageDialogue:
    """A conversation with a `ChatPolicy`: messages in, text out."""

    def __init__(
        self,
        policy: ChatPolicy,
        context: MessagesContext,
        limits: TokenLimits,
        request_id: str,
        tools: NativeTools,
    ) -> None:
        self._policy = policy
        self._tools = tools
        self._context = context
        self._limits = limits
        self._request_id = request_id
        self._messages: list[Message] = []
        self._last = ChatReply("")
        self._last_action = ""
        self._forged_tokens = 0

    def begin(self, observation: Observation) -> str | None:
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


def _check_generation(generation: Generation, max_tokens: int) -> None:
    count = len(generation.token_ids)
    if count > max_tokens:
        raise PolicyError(f"the policy returned {count} tokens, more than max_tokens={max_tokens}")
    if generation.finish_reason not in ("stop", "length"):
        raise PolicyError(f"finish_reason={generation.finish_reason!r}: expected 'stop' or 'length'")
    if generation.logprobs is None:
        return
    if len(generation.logprobs) != count:
        raise PolicyError(f"the policy returned {len(generation.logprobs)} log-probs for {count} tokens")
    if not all(map(math.isfinite, generation.logprobs)):
        raise PolicyError(f"the policy returned non-finite log-probs: {generation.logprobs!r:.200}")
