"""The calls of an agent as the turns of an episode."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gem_agents._api import Reply, Request
from gem_agents._history import Found, Sampled
from gem_chat._histories import ChatMessage
from gem_core.rollout import Generation, Turn
from gem_core.rollout._trajectory import ContextMode


@dataclass(frozen=True)
class Reason:
    """Why a row was opened.

    Attributes:
        kind: "first", "sample" (one of several answers to a request), "branch" (another call continues the
            same answer), "repeated", "cut back", "tools", "no tools", "sub-agent", "conversation",
            "compacted", "rewritten", "foreign", or "template".
        text: The reason in words.
        call: The response to which it refers; None if it refers to none.
    """

    kind: str
    text: str
    call: ModelCall | None = None


@dataclass
class Draft:
    """A prompt for which a response is to be sampled.

    Attributes:
        request: What the agent asked for.
        prompt_ids: The prompt.
        parent: The call whose prompt and response begin the prompt; None for a conversation of its own.
        start: Index of the first message after the response of `parent`.
        segment: Index of the row of tokens that the prompt extends or begins.
        first: Number of tokens in the first prompt of that row.
        found: What is recognized of the conversation.
        why: Why it begins a row; None if it goes on with one.
        said: The response as the agent gets it; None before it is sampled.
    """

    request: Request
    prompt_ids: list[int]
    parent: ModelCall | None
    start: int
    segment: int
    first: int
    found: Found[ModelCall]
    why: Reason | None = None
    said: ChatMessage | None = None

    @property
    def added(self) -> tuple[ChatMessage, ...]:
        """The messages since the last response."""
        return self.request.messages[self.start :]


class ModelCall(Sampled):
    """A sampled response.

    Args:
        draft: Its prompt.
        generation: The response.
        reply: The response as the agent gets it.
        chain: Name of the conversation with the response.
        malformed: Whether it holds a call that cannot be read.

    Attributes:
        reward: Reward of the turn.
        action: What the environment got; None if the agent has played nothing with this response.
        info: Info of the turn.
        child: The call that extends its tokens; None if there is none.
        delivered: Whether the agent got it.
    """

    def __init__(
        self, draft: Draft, generation: Generation, reply: Reply, chain: str, malformed: bool
    ) -> None:
        super().__init__(reply.message, chain)
        self.draft, self.generation, self.reply = draft, generation, reply
        self.reward = 0.0
        self.action: str | None = None
        self.info: dict[str, Any] = {"malformed": True} if malformed else {}
        self.child: Draft | None = None
        self.delivered = False

    @property
    def tokens(self) -> list[int]:
        """Prompt and response."""
        return [*self.draft.prompt_ids, *self.generation.token_ids]


@dataclass
class Counts:
    """What happened in an episode.

    Attributes:
        recognized: Assistant's messages that continue a path of the episode.
        spliced: Assistant's messages that were recognized after their past was rewritten.
        foreign: Assistant's messages that were not sampled here.
        replayed: Requests that were answered with a response that had been lost.
        refused: Requests that got an error.
        lost: Responses that no agent got.
    """

    recognized: int = 0
    spliced: int = 0
    foreign: int = 0
    replayed: int = 0
    refused: int = 0
    lost: int = 0
    unserved: set[str] = field(default_factory=set)


def turns_of(calls: Sequence[ModelCall]) -> tuple[list[Turn], ContextMode]:
    """Return the turns of calls, in order, and the meaning of their context tokens.

    If each call extends the one before it, the turns are those of an appended context.
    """
    indices: dict[int, int] = {}
    turns = []
    for index, call in enumerate(calls):
        indices[id(call)] = index
        parent = call.draft.parent
        parent_index = None if parent is None else indices.get(id(parent))
        shared = 0 if parent is None or parent_index is None else len(parent.tokens)
        turns.append(
            Turn(
                context_ids=call.draft.prompt_ids[shared:],
                response_ids=list(call.generation.token_ids),
                logprobs=None if call.generation.logprobs is None else list(call.generation.logprobs),
                reward=call.reward,
                observation="\n\n".join(message.content for message in call.draft.added),
                action=_action(call),
                finish_reason=call.reply.finish_reason,
                info=call.info,
                parent=-1 if not index else None if parent_index is None else parent_index - index,
            )
        )
    appended = all(turn.parent == -1 for turn in turns[1:])
    return turns, "append" if appended else "rebuild"


def _action(call: ModelCall) -> str:
    if call.action is not None:
        return call.action
    calls = [json.dumps({"name": one.name, "arguments": dict(one.arguments)}) for one in call.message.calls]
    return "\n".join(filter(None, (call.message.content, *calls)))
