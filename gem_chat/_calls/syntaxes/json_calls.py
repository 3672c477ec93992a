"""Syntaxes in JSON: calls as objects, or a name that is followed by a JSON object of arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from gem_chat._calls.reading import call_of, json_object, json_values, with_arguments
from gem_chat._calls.syntaxes.base import MarkedSyntax, closed
from gem_chat.tools import Tool, ToolCall


@dataclass(frozen=True)
class JsonSyntax(MarkedSyntax):
    """A marker, and then objects with the name and the arguments of a call, in a list or one by one.

    Attributes:
        marker: Text that a model writes for `opening`.
        closing: Text after the objects; empty if they end the response.
        shape: Whether each object has its own marker, or all of them share one in a list or in lines.
        keys: Keys of name and arguments. With an empty first key, the name is the key of the arguments.
    """

    marker: str = ""
    closing: str = ""
    shape: Literal["single", "list", "lines"] = "single"
    keys: tuple[str, str] = ("name", "arguments")

    def read(self, text: str, match: re.Match[str], tools: Sequence[Tool]) -> tuple[list[ToolCall], int]:
        """Return the calls that a marker opens."""
        values, end = json_values(text, match.end())
        if isinstance(values, str):
            return [ToolCall("", error=values)], self._end(text, match.end())
        if self.closing:
            after = closed(text, end, self.closing)
            if after is None:
                reason = f"there is other text between the JSON value and {self.closing}"
                return [ToolCall("", error=reason)], self._end(text, end)
            end = after
        calls = [self._call(value) for value in values]
        return calls or [ToolCall("", error="the list of calls is empty")], end

    def _end(self, text: str, position: int) -> int:
        """Return the position after the closing text; the end of `text` if there is none."""
        place = text.find(self.closing, position) if self.closing else -1
        return len(text) if place < 0 else place + len(self.closing)

    def _call(self, value: Any) -> ToolCall:
        if self.keys[0]:
            return call_of(value, 0)
        if not isinstance(value, dict) or len(value) != 1:
            return ToolCall("", error="a call is a JSON object with the name of a tool as its only key")
        ((name, arguments),) = value.items()
        return with_arguments(name, arguments, 0)

    def write(self, calls: Sequence[ToolCall]) -> str:
        """Return calls as a model writes them."""
        objects = [self._object(call) for call in calls]
        if self.shape == "single":
            line = "\n" if self.marker.endswith("\n") else ""
            return self.between.join(f"{self.marker}{one}{line}{self.closing}" for one in objects)
        inner = f"[{', '.join(objects)}]" if self.shape == "list" else "\n".join(objects) + "\n"
        return f"{self.marker}{inner}{self.closing}"

    def _object(self, call: ToolCall) -> str:
        name, arguments = self.keys
        if not name:
            return json.dumps({call.name: dict(call.arguments)})
        given = {"id": call.id} if call.id else {}
        return json.dumps({name: call.name, arguments: dict(call.arguments), **given})


@dataclass(frozen=True)
class NamedSyntax(MarkedSyntax):
    """The name of a tool, and then a JSON object of its arguments.

    Attributes:
        form: Text of a call with the fields ``name``, ``arguments``, ``id``, and ``number``.
        header: Pattern of what follows the marker; its groups ``name`` and ``id`` hold name and id.
        closing: Text after the arguments; empty if they end the call.
    """

    form: str = ""
    header: re.Pattern[str] = re.compile("")
    closing: str = ""

    def read(self, text: str, match: re.Match[str], tools: Sequence[Tool]) -> tuple[list[ToolCall], int]:
        """Return the call that a marker opens."""
        header = self.header.match(text, match.end())
        name = id = ""
        after: int | None = None
        if header is None:
            call = ToolCall("", error=f"expected {self.form.format_map(_EXAMPLE)}")
        else:
            name, id = header["name"].strip(), (header.groupdict().get("id") or "").strip()
            call, end = json_object(name, text, header.end())
            after = closed(text, end, self.closing) if self.closing else end
        if call.error is None and after is None:
            call = ToolCall(name, error=f"there is other text between the arguments and {self.closing}")
        if call.error is not None:
            place = text.find(self.closing, match.end()) if self.closing else -1
            after = len(text) if place < 0 else place + len(self.closing)
        return [replace(call, id=id)], len(text) if after is None else after

    def write_one(self, call: ToolCall, index: int) -> str:
        """Return a call as a model writes it."""
        arguments = json.dumps(dict(call.arguments))
        given = call.id or f"call{index:05d}"
        fields = {"name": call.name, "arguments": arguments, "id": given, "number": str(index)}
        return self.form.format_map(fields)


_EXAMPLE = {"name": "name", "arguments": "{...}", "id": "id", "number": "0"}


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.DOTALL)


_NAME = r"\s*(?P<name>[^\s<>\[\]{}|｜]{1,200})\s*"
_SECTION = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
_THINK = ("[THINK]", "[/THINK]")

JSON_SYNTAXES = (
    JsonSyntax("hermes", _pattern("<tool_call>"), marker="<tool_call>\n", closing="</tool_call>"),
    JsonSyntax(
        "tool_calls", _pattern("<tool_calls>"), marker="<tool_calls>", closing="</tool_calls>", shape="list"
    ),
    JsonSyntax("nemotron", _pattern("<TOOLCALL>"), marker="<TOOLCALL>", closing="</TOOLCALL>", shape="list"),
    JsonSyntax(
        "mistral-list", _pattern(r"\[TOOL_CALLS\]"), marker="[TOOL_CALLS]", shape="list", thinking=_THINK
    ),
    JsonSyntax(
        "gigachat", _pattern(r"<\|function_call\|>|function call<\|role_sep\|>\n"),
        marker="<|function_call|>",
    ),
    JsonSyntax(
        "cohere", _pattern(r"<\|START_ACTION\|>"), marker="<|START_ACTION|>", closing="<|END_ACTION|>",
        shape="list", keys=("tool_name", "parameters"), thinking=("<|START_THINKING|>", "<|END_THINKING|>"),
    ),
    JsonSyntax(
        "apertus", _pattern(r"<\|tools_prefix\|>"), marker="<|tools_prefix|>", closing="<|tools_suffix|>",
        shape="list", keys=("", ""), thinking=("<|inner_prefix|>", "<|inner_suffix|>"),
    ),
    NamedSyntax(
        "kimi",
        _pattern(r"<\|tool_call_begin\|>"),
        ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"), "",
        header=_pattern(
            r"\s*(?P<id>(?:functions\.)?(?P<name>[^\s<:]{1,200})(?::\d{1,9})?)\s*<\|tool_call_argument_begin\|>"
        ),
        form="<|tool_call_begin|>functions.{name}:{number}<|tool_call_argument_begin|>{arguments}"
        "<|tool_call_end|>",
        closing="<|tool_call_end|>",
    ),
    NamedSyntax(
        "deepseek-v3", _pattern("<｜tool▁call▁begin｜>"), _SECTION,
        header=_pattern(rf"function<｜tool▁sep｜>{_NAME}```json"),
        form="<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{arguments}\n```<｜tool▁call▁end｜>",
        closing="```<｜tool▁call▁end｜>",
    ),
    NamedSyntax(
        "deepseek-v3.1", _pattern("<｜tool▁call▁begin｜>"), _SECTION, "",
        header=_pattern(rf"{_NAME}<｜tool▁sep｜>"),
        form="<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜>",
        closing="<｜tool▁call▁end｜>",
    ),
    NamedSyntax(
        "mistral-id", _pattern(r"\[TOOL_CALLS\]"), between="", thinking=_THINK,
        header=_pattern(rf"{_NAME}\[CALL_ID\](?P<id>[^\[\s]{{0,64}})\[ARGS\]"),
        form="[TOOL_CALLS]{name}[CALL_ID]{id}[ARGS]{arguments}",
    ),
    NamedSyntax(
        "mistral", _pattern(r"\[TOOL_CALLS\]"), between="", thinking=_THINK,
        header=_pattern(rf"{_NAME}(?:\[ARGS\]|(?=\{{))"), form="[TOOL_CALLS]{name}[ARGS]{arguments}",
    ),
    NamedSyntax(
        "solar", _pattern(r"<\|tool_call:begin\|>"), ("<|tool_calls|>", ""), "",
        header=_pattern(
            r"(?P<id>[^<]{0,64})<\|tool_call:name\|>(?P<name>[^<]{1,200})<\|tool_call:args\|>"
        ),
        form="<|tool_call:begin|>{id}<|tool_call:name|>{name}<|tool_call:args|>{arguments}<|tool_call:end|>",
        closing="<|tool_call:end|>", thinking=("<|think|>", "<|end|>"),
    ),
    NamedSyntax(
        "functionary", _pattern("<function="), between="", header=_pattern(r"(?P<name>[^>\s]{1,200})>"),
        form="<function={name}>{arguments}</function>", closing="</function>",
    ),
    NamedSyntax(
        "functionary-v3.2", _pattern(r"(?:\A|>>>)(?!all\n)(?=[\w.-]{1,200}\n\{)"), between="",
        header=_pattern(r"(?P<name>[^\s>]{1,200})\n"), form=">>>{name}\n{arguments}",
    ),
)  # fmt: skip
"""The syntaxes; those that share a marker are in the order in which they are tried."""
