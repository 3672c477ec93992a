"""OpenAI's chat completions."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from gem_agents._api import (
    Refused,
    Reply,
    Request,
    arguments_text,
    bad,
    event,
    function,
    named,
    objects,
    positive,
    requested_call,
    stop_strings,
    text_of,
    unserved,
)
from gem_chat._histories import ChatMessage

_ROLES = {"developer": "system", "function": "tool"}


class ChatCompletions:
    """The endpoint ``/v1/chat/completions``."""

    def read(self, body: Mapping[str, Any]) -> Request:
        messages = [_message(entry) for entry in objects(body.get("messages"), "messages")]
        if not messages:
            raise bad("messages: expected at least one message")
        hidden = body.get("tool_choice") == "none"
        tools = [] if hidden else objects(body.get("tools"), "tools")
        count = positive(body.get("n"), "n") or 1
        return Request(
            named(messages),
            tuple(_tool(tool) for tool in tools if tool.get("type", "function") == "function"),
            bool(body.get("stream")),
            positive(body.get("max_completion_tokens", body.get("max_tokens")), "max_tokens"),
            stop_strings(body.get("stop"), "stop"),
            count,
            str(body.get("model") or ""),
            {"usage": bool((body.get("stream_options") or {}).get("include_usage"))},
            unserved(body, "response_format", *(["tool_choice"] if _forces(body.get("tool_choice")) else [])),
        )

    def answer(self, request: Request, id: str, replies: Sequence[Reply]) -> dict[str, Any]:
        choices = []
        for index, reply in enumerate(replies):
            said = reply.message
            message: dict[str, Any] = {"role": "assistant", "content": said.content or None, "refusal": None}
            if said.thought:
                message["reasoning_content"] = said.thought
            if said.calls:
                message["tool_calls"] = _calls(said)
            elif message["content"] is None:
                message["content"] = ""
            choices.append(
                {"index": index, "message": message, "finish_reason": _finish(reply), "logprobs": None}
            )
        return {
            "id": f"chatcmpl-{id}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": request.model,
            "choices": choices,
            "usage": _usage(replies),
        }

    def opening(self, request: Request, id: str) -> bytes:
        return b""

    def heartbeat(self, request: Request, id: str) -> bytes:
        return b": ping\n\n"

    def rest(self, request: Request, id: str, replies: Sequence[Reply]) -> bytes:
        parts = []
        for index, reply in enumerate(replies):
            said = reply.message
            deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
            if said.thought:
                deltas.append({"reasoning_content": said.thought})
            if said.content:
                deltas.append({"content": said.content})
            if said.calls:
                deltas += [{"tool_calls": [{"index": n, **call}]} for n, call in enumerate(_calls(said))]
            parts += [self._chunk(request, id, index, delta, None) for delta in deltas]
            parts.append(self._chunk(request, id, index, {}, _finish(reply)))
        if request.options["usage"]:
            parts.append(event({**self._base(request, id), "choices": [], "usage": _usage(replies)}))
        return b"".join([*parts, event("[DONE]")])

    def error(self, refused: Refused) -> dict[str, Any]:
        return openai_error(refused)

    def broken(self, request: Request, id: str, refused: Refused) -> bytes:
        return event(self.error(refused)) + event("[DONE]")

    def _base(self, request: Request, id: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{id}",
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": request.model,
        }

    def _chunk(
        self, request: Request, id: str, index: int, delta: dict[str, Any], finish: str | None
    ) -> bytes:
        choice = {"index": index, "delta": delta, "finish_reason": finish, "logprobs": None}
        return event({**self._base(request, id), "choices": [choice]})


def openai_error(refused: Refused) -> dict[str, Any]:
    """Return the body of an error in OpenAI's APIs."""
    kind = "invalid_request_error" if refused.status < 500 else "server_error"
    return {"error": {"message": str(refused), "type": kind, "param": None, "code": refused.code}}


def _message(entry: Mapping[str, Any]) -> ChatMessage:
    role = str(entry.get("role"))
    role = _ROLES.get(role, role)
    if role not in ("system", "user", "assistant", "tool"):
        raise bad(f"a message has the role {role[:80]!r}: expected system, user, assistant, or tool")
    content = text_of(entry.get("content"))
    if role == "tool":
        return ChatMessage(role, content, call_id=str(entry.get("tool_call_id") or ""))
    if role != "assistant":
        return ChatMessage(role, content)
    calls = []
    for call in objects(entry.get("tool_calls"), "tool_calls"):
        shape = call.get("function")
        if not isinstance(shape, dict):
            raise bad("a tool call needs a function")
        calls.append(requested_call(call.get("id"), shape.get("name"), shape.get("arguments")))
    thought = entry.get("reasoning_content") or entry.get("reasoning")
    return ChatMessage(role, content, tuple(calls), thought if isinstance(thought, str) else "")


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    shape = tool.get("function")
    if not isinstance(shape, dict):
        raise bad("a tool needs a function")
    return function(shape.get("name"), shape.get("description"), shape.get("parameters"))


def _forces(choice: Any) -> bool:
    return choice not in (None, "auto", "none")


def _calls(message: ChatMessage) -> list[dict[str, Any]]:
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": arguments_text(call)},
        }
        for call in message.calls
    ]


def _finish(reply: Reply) -> str:
    return "tool_calls" if reply.message.calls and reply.finish_reason == "stop" else reply.finish_reason


def _usage(replies: Sequence[Reply]) -> dict[str, Any]:
    prompt = replies[0].prompt_tokens if replies else 0
    sampled = sum(reply.response_tokens for reply in replies)
    cached = replies[0].cached_tokens if replies else 0
    return {
        "prompt_tokens": prompt,
        "completion_tokens": sampled,
        "total_tokens": prompt + sampled,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
