"""`History`: finds the sampled responses in the messages that an agent sends back.

A message is recognized by its role, its text without outer whitespace, and its calls with their arguments in
one form. Thoughts, which many agents drop, and the ids of calls, which some replace, are no part of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gem_chat._histories import ChatMessage


class Sampled:
    """A response in a `History`.

    Args:
        message: The response as the agent got it.
        chain: Name of the tools, the messages before it, and the message.
    """

    def __init__(self, message: ChatMessage, chain: str) -> None:
        self.message, self.chain = message, chain


SampledT = TypeVar("SampledT", bound=Sampled)


@dataclass(frozen=True)
class Found(Generic[SampledT]):
    """What a history recognizes in a conversation.

    Attributes:
        chain: Name of the tools and the conversation.
        keys: What identifies each message.
        last: The response that ends the longest known beginning of the conversation; None if there is none.
        start: Index of the first message after `last`.
        known: Responses by the index of their message, wherever their text occurs.
        foreign: Indices of the assistant's messages that were not sampled here.
    """

    chain: str
    keys: list[str]
    last: SampledT | None
    start: int
    known: dict[int, SampledT]
    foreign: list[int]


class CallHistory(Generic[SampledT]):
    """The responses of one episode."""

    def __init__(self) -> None:
        self._by_chain: dict[str, list[SampledT]] = {}
        self._by_key: dict[str, list[SampledT]] = {}

    def add(self, response: SampledT) -> None:
        """Add a response that the agent may send back."""
        self._by_chain.setdefault(response.chain, []).append(response)
        self._by_key.setdefault(key_of(response.message), []).append(response)

    def find(self, messages: Sequence[ChatMessage], schemas: Sequence[Any]) -> Found[SampledT]:
        """Return what is known of a conversation."""
        chain = link("", json.dumps(list(schemas), sort_keys=True))
        last, start = None, 0
        known: dict[int, SampledT] = {}
        foreign: list[int] = []
        keys = [key_of(message) for message in messages]
        for index, (message, key) in enumerate(zip(messages, keys, strict=True)):
            chain = link(chain, key)
            if message.role != "assistant":
                continue
            path = self._by_chain.get(chain)
            if path:
                last, start = _meant(path, message), index + 1
                known[index] = last
            elif key in self._by_key:
                known[index] = _meant(self._by_key[key], message)
            else:
                foreign.append(index)
        return Found(chain, keys, last, start, known, foreign)


def _meant(responses: Sequence[SampledT], message: ChatMessage) -> SampledT:
    """Return the response that a message is; of equal ones, one with its ids or thoughts, or the last."""
    ids = {call.id for call in message.calls}
    same = [one for one in responses if ids & {call.id for call in one.message.calls}]
    same = same or [one for one in responses if one.message.thought.strip() == message.thought.strip()]
    return (same or responses)[-1]


def key_of(message: ChatMessage) -> str:
    """Return what identifies a message."""
    calls = [
        (call.name, json.dumps(call.arguments, sort_keys=True, separators=(",", ":")))
        for call in message.calls
    ]
    return _digest(json.dumps([message.role, message.content.strip(), calls]))


def link(chain: str, key: str) -> str:
    """Return the name of a conversation with one more message."""
    return _digest(f"{chain} {key}")


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()
