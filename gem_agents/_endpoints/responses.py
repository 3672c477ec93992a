"""OpenAI's Responses."""

from __future__ import annotations

import json
import time
from collections import Counter
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
    text_of,
    unserved,
)
from gem_agents._endpoints.chat import openai_error
from gem_chat._histories import ChatMessage

_INPUT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
"""Arguments of a custom tool, which takes a text."""


class Responses:
    """The endpoint ``/v1/responses`` of one episode, which keeps what its requests may refer to.

    Attributes:
        stored: Conversations by the id of the response that ends them.
    """

    def __init__(self) -> None:
        self.stored: dict[str, tuple[ChatMessage, ...]] = {}

    def read(self, body: Mapping[str, Any]) -> Request:
        messages: list[ChatMessage] = []
        if body.get("instructions"):
            messages.append(ChatMessage("system", text_of(body["instructions"])))
        before = body.get("previous_response_id")
        if before is not None:
            if before not in self.stored:
                raise bad(f"there is no response {str(before)[:80]!r} in this episode")
            earlier = self.stored[before]
            messages += earlier[1:] if messages and earlier[0].role == "system" else earlier
        given = body.get("input")
        items = [{"role": "user", "content": given}] if isinstance(given, str) else objects(given, "input")
        listed = objects(body.get("tools"), "tools")
        spaces = _spaces(listed)
        _add(messages, items, {origin: name for name, origin in spaces.items()})
        if not messages:
            raise bad("input: expected at least one item")
        choice = body.get("tool_choice")
        tools = [] if choice == "none" else listed
        custom = frozenset(str(tool.get("name")) for tool in tools if tool.get("type") == "custom")
        forced = ["tool_choice"] if choice not in (None, "auto", "none") else []
        text = ["text"] if (body.get("text") or {}).get("format", {}).get("type", "text") != "text" else []
        return Request(
            named(messages),
            tuple(schema for tool in tools for schema in _tools(tool, spaces)),
            bool(body.get("stream")),
            positive(body.get("max_output_tokens"), "max_output_tokens"),
            (),
            1,
            str(body.get("model") or ""),
            {"body": body, "custom": custom, "spaces": spaces},
            unserved(body, *forced, *text),
        )

    def answer(self, request: Request, id: str, replies: Sequence[Reply]) -> dict[str, Any]:
        (reply,) = replies
        self.stored[f"resp_{id}"] = (*request.messages, reply.message)
        cut = reply.finish_reason == "length"
        return {
            **self._response(request, id),
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": _items(request, id, reply),
            "usage": _usage(reply),
        }

    def opening(self, request: Request, id: str) -> bytes:
        begun = self._response(request, id)
        return _event("response.created", 0, response=begun) + self.heartbeat(request, id)

    def heartbeat(self, request: Request, id: str) -> bytes:
        """Return an event, because Codex does not count comments."""
        return _event("response.in_progress", 1, response=self._response(request, id))

    def rest(self, request: Request, id: str, replies: Sequence[Reply]) -> bytes:
        whole = self.answer(request, id, replies)
        events: list[tuple[str, dict[str, Any]]] = []
        for index, item in enumerate(whole["output"]):
            events += _item_events(item, index)
        kind = "response.incomplete" if whole["status"] == "incomplete" else "response.completed"
        events.append((kind, {"response": whole}))
        return b"".join(_event(name, number, **data) for number, (name, data) in enumerate(events, 2))

    def error(self, refused: Refused) -> dict[str, Any]:
        return openai_error(refused)

    def broken(self, request: Request, id: str, refused: Refused) -> bytes:
        error = {"code": refused.code, "message": str(refused)}
        failed = {**self._response(request, id), "status": "failed", "error": error}
        return _event("response.failed", 2, response=failed)

    def _response(self, request: Request, id: str) -> dict[str, Any]:
        body = request.options["body"]
        return {
            "id": f"resp_{id}",
            "object": "response",
            "created_at": int(time.time()),
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "instructions": body.get("instructions"),
            "metadata": body.get("metadata") or {},
            "model": request.model,
            "output": [],
            "parallel_tool_calls": True,
            "previous_response_id": body.get("previous_response_id"),
            "temperature": None,
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "usage": None,
        }


def _add(
    messages: list[ChatMessage],
    items: Sequence[Mapping[str, Any]],
    shown: Mapping[tuple[str, str], str],
) -> None:
    """Add the messages of items; those of one response follow each other, thoughts first.

    Args:
        messages: The messages before them.
        items: The items.
        shown: What the model knows tools as, by their namespaces and names.
    """
    open_ended = False  # whether the last message is an assistant's that further items continue

    def assistant(*, thought: bool = False) -> ChatMessage:
        nonlocal open_ended
        last = messages[-1] if open_ended else None
        if last is None or (thought and (last.content or last.calls)):
            messages.append(ChatMessage("assistant"))
            open_ended = True
        return messages[-1]

    for item in items:
        kind = item.get("type", "message")
        if kind == "message" and item.get("role") == "assistant":
            said = assistant()
            content = "\n".join(filter(None, (said.content, text_of(item.get("content")))))
            messages[-1] = ChatMessage("assistant", content, said.calls, said.thought)
        elif kind == "reasoning":
            said = assistant(thought=True)
            thought = text_of(item.get("content")) or text_of(item.get("summary"))
            messages[-1] = ChatMessage("assistant", said.content, said.calls, thought)
        elif kind in ("function_call", "custom_tool_call"):
            said = assistant()
            given = item.get("arguments") if kind == "function_call" else {"input": item.get("input")}
            name = shown.get((str(item.get("namespace")), str(item.get("name"))), item.get("name"))
            calls = (*said.calls, requested_call(item.get("call_id"), name, given))
            messages[-1] = ChatMessage("assistant", said.content, calls, said.thought)
        else:
            open_ended = False
            messages.append(_other(kind, item))


def _other(kind: str, item: Mapping[str, Any]) -> ChatMessage:
    if kind in ("function_call_output", "custom_tool_call_output"):
        return ChatMessage("tool", text_of(item.get("output")), call_id=str(item.get("call_id") or ""))
    if kind != "message":
        return ChatMessage("user", json.dumps(item))
    role = str(item.get("role"))
    if role not in ("system", "developer", "user"):
        raise bad(f"a message has the role {role[:80]!r}: expected system, developer, user, or assistant")
    return ChatMessage("user" if role == "user" else "system", text_of(item.get("content")))


def _spaces(tools: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, str]]:
    """Return the namespaces and names of tools in namespaces, by the names that the model sees.

    The model sees the name of a tool, with the namespace only if several tools have the name.
    """
    outside = [str(tool.get("name")) for tool in tools if tool.get("type") in ("function", "custom")]
    inside = [
        (str(tool.get("name")), str(inner.get("name")))
        for tool in tools
        if tool.get("type") == "namespace"
        for inner in objects(tool.get("tools"), "tools")
    ]
    counts = Counter([*outside, *(name for _, name in inside)])
    return {name if counts[name] == 1 else f"{space}__{name}": (space, name) for space, name in inside}


def _tools(tool: Mapping[str, Any], spaces: Mapping[str, tuple[str, str]]) -> list[dict[str, Any]]:
    kind = tool.get("type")
    if kind == "function":
        return [function(tool.get("name"), tool.get("description"), tool.get("parameters"))]
    if kind == "custom":
        return [function(tool.get("name"), tool.get("description"), _INPUT)]
    if kind == "namespace":
        shown = {origin: name for name, origin in spaces.items()}
        return [
            function(
                shown[str(tool.get("name")), str(inner.get("name"))],
                inner.get("description"),
                _INPUT if inner.get("type") == "custom" else inner.get("parameters"),
            )
            for inner in objects(tool.get("tools"), "tools")
        ]
    return []  # such as web_search, which the server of the API would carry out


def _items(request: Request, id: str, reply: Reply) -> list[dict[str, Any]]:
    said = reply.message
    items: list[dict[str, Any]] = []
    if said.thought:
        content = [{"type": "reasoning_text", "text": said.thought}]
        items.append({"type": "reasoning", "id": f"rs_{id}", "summary": [], "content": content})
    if said.content or not said.calls:
        text = {"type": "output_text", "text": said.content, "annotations": [], "logprobs": []}
        items.append({"type": "message", "id": f"msg_{id}", "role": "assistant", "content": [text]})
    for number, call in enumerate(said.calls):
        space, name = request.options["spaces"].get(call.name, ("", call.name))
        item = {"id": f"fc_{id}{number}", "call_id": call.id, "name": name}
        if space:
            item["namespace"] = space
        if call.name in request.options["custom"]:
            items.append({"type": "custom_tool_call", **item, "input": str(call.arguments.get("input", ""))})
        else:
            items.append({"type": "function_call", **item, "arguments": arguments_text(call)})
    return [{**item, "status": "completed"} for item in items]


def _item_events(item: dict[str, Any], index: int) -> list[tuple[str, dict[str, Any]]]:
    at = {"output_index": index, "item_id": item["id"]}
    begun = {**item, "status": "in_progress"}
    events: list[tuple[str, dict[str, Any]]] = []
    if item["type"] == "message":
        begun["content"] = []
        part = {**at, "content_index": 0}
        text = item["content"][0]
        events = [
            ("response.content_part.added", {**part, "part": {**text, "text": ""}}),
            ("response.output_text.delta", {**part, "delta": text["text"], "logprobs": []}),
            ("response.output_text.done", {**part, "text": text["text"], "logprobs": []}),
            ("response.content_part.done", {**part, "part": text}),
        ]
    elif item["type"] == "function_call":
        begun["arguments"] = ""
        given, name = item["arguments"], item["name"]
        events = [
            ("response.function_call_arguments.delta", {**at, "delta": given}),
            ("response.function_call_arguments.done", {**at, "arguments": given, "name": name}),
        ]
    elif item["type"] == "custom_tool_call":
        begun["input"] = ""
        events = [
            ("response.custom_tool_call_input.delta", {**at, "delta": item["input"]}),
            ("response.custom_tool_call_input.done", {**at, "input": item["input"]}),
        ]
    else:
        begun["content"] = []
        part, text = {**at, "content_index": 0}, item["content"][0]["text"]
        events = [
            ("response.reasoning_text.delta", {**part, "delta": text}),
            ("response.reasoning_text.done", {**part, "text": text}),
        ]
    added = ("response.output_item.added", {"output_index": index, "item": begun})
    return [added, *events, ("response.output_item.done", {"output_index": index, "item": item})]


def _usage(reply: Reply) -> dict[str, Any]:
    return {
        "input_tokens": reply.prompt_tokens,
        "input_tokens_details": {"cached_tokens": reply.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": reply.response_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": reply.prompt_tokens + reply.response_tokens,
    }


def _event(kind: str, number: int, /, **data: Any) -> bytes:
    return event({"type": kind, "sequence_number": number, **data}, kind)
