"""What an agent asks for, and what it gets, whatever the endpoint: `Request`, `Reply`, `Refused`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gem_chat._histories import ChatMessage
from gem_chat.tools import ToolCall
from gem_core._util.foreign_json import read_json
from gem_core.rollout._turn import FinishReason

IGNORED = frozenset(
    {"temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty", "logit_bias"}
)
"""Parameters of sampling, which the trainer chooses."""


class Refused(Exception):
    """Raised for a request that gets an error as its answer.

    Args:
        status: HTTP status. Only 400 stops almost every agent; 409, 429, and 5xx are retried.
        code: Code of the error, such as "episode_over".
        message: What was wrong, for the agent.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


@dataclass(frozen=True)
class Request:
    """A request for responses.

    Attributes:
        messages: The conversation.
        schemas: Schemas of the tools that the model may call.
        stream: Whether the answer is a stream of events.
        max_tokens: Maximum number of tokens in a response; None for the limits of the episode only.
        stop: Texts that end a response.
        count: Number of responses.
        model: Name of the model, as the agent writes it.
        options: Further values of the endpoint.
        unserved: Names of parameters that have no effect.
    """

    messages: tuple[ChatMessage, ...]
    schemas: tuple[dict[str, Any], ...] = ()
    stream: bool = False
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    count: int = 1
    model: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    unserved: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reply:
    """A response as the agent gets it.

    Attributes:
        message: The response, whose calls have ids.
        finish_reason: Why it ended.
        stop: The text that ended it; None if none did.
        prompt_tokens: Number of tokens in the prompt.
        response_tokens: Number of sampled tokens.
        cached_tokens: Number of tokens in the prompt that earlier calls of the episode had.
    """

    message: ChatMessage
    finish_reason: FinishReason
    stop: str | None
    prompt_tokens: int
    response_tokens: int
    cached_tokens: int


class EndpointFormat(Protocol):
    """An API: how its requests are read, and its answers written."""

    def read(self, body: Mapping[str, Any]) -> Request:
        """Return what a request asks for.

        Raises:
            Refused: The body is not a request of this API.
        """
        ...

    def answer(self, request: Request, id: str, replies: Sequence[Reply]) -> dict[str, Any]:
        """Return the body of the answer; `id` is unique and the same in all events of a stream."""
        ...

    def opening(self, request: Request, id: str) -> bytes:
        """Return the part of a stream that does not depend on the response."""
        ...

    def heartbeat(self, request: Request, id: str) -> bytes:
        """Return what keeps a stream alive while the model samples."""
        ...

    def rest(self, request: Request, id: str, replies: Sequence[Reply]) -> bytes:
        """Return the part of a stream after its opening."""
        ...

    def error(self, refused: Refused) -> dict[str, Any]:
        """Return the body of an error."""
        ...

    def broken(self, request: Request, id: str, refused: Refused) -> bytes:
        """Return the end of a stream that fails."""
        ...


def bad(what: str) -> Refused:
    """Return the refusal of a malformed request."""
    return Refused(400, "invalid_request_error", what)


def requested_call(id: Any, name: Any, arguments: Any) -> ToolCall:
    """Return a call of an assistant's message; arguments that are no JSON object stay as a text."""
    value = arguments
    if isinstance(arguments, str):
        try:
            value = read_json(arguments or "{}")
        except ValueError:
            value = None
    if not isinstance(value, dict):
        value = {"arguments": arguments}
    return ToolCall(str(name or ""), value, id=str(id or ""))


def arguments_text(call: ToolCall) -> str:
    """Return the arguments of a call as JSON text."""
    return json.dumps(dict(call.arguments), ensure_ascii=False)


def function(name: Any, description: Any, parameters: Any) -> dict[str, Any]:
    """Return the schema of a tool in the form of chat completions."""
    if not isinstance(name, str) or not name:
        raise bad("a tool needs a name")
    empty = {"type": "object", "properties": {}}
    shape = {"name": name, "description": description or "", "parameters": parameters or empty}
    return {"type": "function", "function": shape}


def text_of(content: Any) -> str:
    """Return the text of a content: a text, or a list of parts with texts.

    Raises:
        Refused: It holds something else, such as an image.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    texts = []
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            texts.append(part)
        elif not isinstance(part, dict):
            raise bad("expected a text or a list of parts as the content of a message")
        elif isinstance(text := part.get("text", part.get("refusal")), str):
            texts.append(text)
        elif "image" in str(part.get("type")):
            raise bad("this model takes text only, but the request has an image")
        elif "content" in part:
            texts.append(text_of(part["content"]))
        else:
            raise bad(f"a content part of type {str(part.get('type'))[:80]!r} is not supported")
    return "\n".join(texts)


def positive(value: Any, name: str) -> int | None:
    """Return a limit on tokens; None if there is none."""
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise bad(f"{name} is {str(value)[:40]!r}: expected a whole number above 0")
    return value


def stop_strings(value: Any, name: str) -> tuple[str, ...]:
    """Return stop strings, given as a text or a list of texts."""
    values = [value] if isinstance(value, str) else value or []
    if not isinstance(values, list) or not all(isinstance(text, str) for text in values):
        raise bad(f"{name}: expected a text or a list of texts")
    return tuple(text for text in values if text)


def objects(value: Any, name: str) -> list[dict[str, Any]]:
    """Return a list of JSON objects."""
    values = [] if value is None else value
    if not isinstance(values, list) or not all(isinstance(item, dict) for item in values):
        raise bad(f"{name}: expected a list of objects")
    return values


def unserved(body: Mapping[str, Any], *more: str) -> tuple[str, ...]:
    """Return the names of the parameters in a request that have no effect."""
    return tuple(sorted(name for name in IGNORED.union(more) if body.get(name) is not None))


def named(messages: Sequence[ChatMessage]) -> tuple[ChatMessage, ...]:
    """Return messages in which each result has the name of its tool."""
    names = {call.id: call.name for message in messages for call in message.calls}
    return tuple(
        ChatMessage(message.role, message.content, call_id=message.call_id, name=names[message.call_id])
        if message.role == "tool" and message.call_id in names
        else message
        for message in messages
    )


def event(data: Any, name: str | None = None) -> bytes:
    """Return an event of a stream."""
    head = "" if name is None else f"event: {name}\n"
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return f"{head}data: {text}\n\n".encode("utf-8", "replace")
