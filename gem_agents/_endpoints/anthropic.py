"""Anthropic's messages."""

from __future__ import annotations

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

_SIGNATURE = "gem-core"
"""Signature of thoughts, without which agents do not send them back."""


class AnthropicMessages:
    """The endpoint ``/v1/messages``."""

    def read(self, body: Mapping[str, Any]) -> Request:
        messages: list[ChatMessage] = []
        if body.get("system"):
            messages.append(ChatMessage("system", text_of(body["system"])))
        for entry in objects(body.get("messages"), "messages"):
            messages += _messages(entry)
        if not any(message.role != "system" for message in messages):
            raise bad("messages: expected at least one message")
        choice = body.get("tool_choice") or {}
        hidden = isinstance(choice, dict) and choice.get("type") == "none"
        tools = [] if hidden else objects(body.get("tools"), "tools")
        forced = isinstance(choice, dict) and choice.get("type") in ("any", "tool")
        thinking = body.get("thinking")
        return Request(
            named(messages),
            tuple(
                function(tool.get("name"), tool.get("description"), tool["input_schema"])
                for tool in tools
                if "input_schema" in tool
            ),
            bool(body.get("stream")),
            positive(body.get("max_tokens"), "max_tokens"),
            stop_strings(body.get("stop_sequences"), "stop_sequences"),
            1,
            str(body.get("model") or ""),
            {"thinking": isinstance(thinking, dict) and thinking.get("type") in ("enabled", "adaptive")},
            unserved(body, *(["tool_choice"] if forced else [])),
        )

    def answer(self, request: Request, id: str, replies: Sequence[Reply]) -> dict[str, Any]:
        (reply,) = replies
        return {
            **self._message(request, id),
            "content": _blocks(request, reply),
            "stop_reason": _finish(reply),
            "stop_sequence": reply.stop,
            "usage": _usage(reply),
        }

    def opening(self, request: Request, id: str) -> bytes:
        usage = {"input_tokens": 0, "output_tokens": 0}
        message = {**self._message(request, id), "content": [], "usage": usage}
        return _event({"type": "message_start", "message": message})

    def heartbeat(self, request: Request, id: str) -> bytes:
        return _event({"type": "ping"})

    def rest(self, request: Request, id: str, replies: Sequence[Reply]) -> bytes:
        (reply,) = replies
        parts = []
        for index, block in enumerate(_blocks(request, reply)):
            empty, deltas = _deltas(block, reply)
            start = {"type": "content_block_start", "index": index, "content_block": empty}
            parts.append(_event(start))
            parts += [
                _event({"type": "content_block_delta", "index": index, "delta": delta}) for delta in deltas
            ]
            parts.append(_event({"type": "content_block_stop", "index": index}))
        delta = {"stop_reason": _finish(reply), "stop_sequence": reply.stop}
        parts.append(_event({"type": "message_delta", "delta": delta, "usage": _usage(reply)}))
        return b"".join([*parts, _event({"type": "message_stop"})])

    def error(self, refused: Refused) -> dict[str, Any]:
        kinds = {401: "authentication_error", 404: "not_found_error", 413: "request_too_large"}
        kind = kinds.get(refused.status, "invalid_request_error" if refused.status < 500 else "api_error")
        return {"type": "error", "error": {"type": kind, "message": str(refused)}}

    def broken(self, request: Request, id: str, refused: Refused) -> bytes:
        return _event(self.error(refused))

    def _message(self, request: Request, id: str) -> dict[str, Any]:
        return {
            "id": f"msg_{id}",
            "type": "message",
            "role": "assistant",
            "model": request.model,
            "stop_reason": None,
            "stop_sequence": None,
        }


def _event(data: dict[str, Any]) -> bytes:
    return event(data, data["type"])


def _messages(entry: Mapping[str, Any]) -> list[ChatMessage]:
    """Return the messages of one entry: results come before what else the user says."""
    role, content = entry.get("role"), entry.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else objects(content, "content")
    if role == "assistant":
        thoughts = [str(block.get("thinking") or "") for block in blocks if block.get("type") == "thinking"]
        said = [block for block in blocks if block.get("type") == "text"]
        calls = tuple(
            requested_call(block.get("id"), block.get("name"), block.get("input"))
            for block in blocks
            if block.get("type") == "tool_use"
        )
        return [ChatMessage("assistant", text_of(said), calls, "\n\n".join(filter(None, thoughts)))]
    if role not in ("user", "system"):
        raise bad(f"a message has the role {str(role)[:80]!r}: expected user or assistant")
    results = [
        ChatMessage("tool", text_of(block.get("content")), call_id=str(block.get("tool_use_id") or ""))
        for block in blocks
        if block.get("type") == "tool_result"
    ]
    rest = [block for block in blocks if block.get("type") != "tool_result"]
    return [*results, *([ChatMessage(str(role), text_of(rest))] if rest or not results else [])]


def _blocks(request: Request, reply: Reply) -> list[dict[str, Any]]:
    said = reply.message
    blocks: list[dict[str, Any]] = []
    if said.thought and request.options["thinking"]:
        blocks.append({"type": "thinking", "thinking": said.thought, "signature": _SIGNATURE})
    if said.content or not said.calls:
        blocks.append({"type": "text", "text": said.content})
    blocks += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.arguments)}
        for call in said.calls
    ]
    return blocks


def _deltas(block: dict[str, Any], reply: Reply) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a block before its content, and the events that fill it."""
    if block["type"] == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
    if block["type"] == "thinking":
        return {**block, "thinking": "", "signature": ""}, [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ]
    call = next(call for call in reply.message.calls if call.id == block["id"])
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": arguments_text(call)}]


def _finish(reply: Reply) -> str:
    if reply.stop is not None:
        return "stop_sequence"
    if reply.finish_reason == "length":
        return "max_tokens"
    return "tool_use" if reply.message.calls else "end_turn"


def _usage(reply: Reply) -> dict[str, int]:
    return {
        "input_tokens": reply.prompt_tokens - reply.cached_tokens,
        "cache_read_input_tokens": reply.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": reply.response_tokens,
    }
