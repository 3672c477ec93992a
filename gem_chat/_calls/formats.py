r"""Formats in which models write calls and read results, by name.

- ``gem``: ``<python>print(1)</python>``, a fenced python block, ``<search>gems</search>``: the tag is the
  name of a tool that has one text argument or none. For any tool: ``<tool_call><tool_name>n</tool_name>
  <arguments>{...}</arguments></tool_call>``, or the format ``hermes``.
- ``hermes``: ``<tool_call>{"name": "n", "arguments": {...}}</tool_call>``, the format of Qwen and Hermes
  models.
- ``llama``: ``{"name": "n", "parameters": {...}}``, ``<function=n>{...}</function>``, or ``[n(key="value")]``
  as the whole response, the format of Llama models.

A parser accepts any text, in time linear in its length. Text that looks like a call but cannot be parsed
becomes a `ToolCall` with an `error` that can be shown to the model. Thinking that ends with ``</think>`` is
not searched for calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from gem_chat._calls import literals
from gem_chat._calls.examples import example_arguments
from gem_chat._calls.reading import MAX_CALLS, after_thinking, checked, json_arguments, json_call, with_json
from gem_chat._calls.schema import OPEN, kinds_of, properties_of, required_of
from gem_chat._tools import CallFormat, schema
from gem_chat.tools import Tool, ToolCall
from gem_core._util.registry import Registry


class _Format:
    """Shared parts of the formats: instructions that consist of a list of schemas and an example."""

    name = ""

    def write(self, tool: Tool, arguments: Mapping[str, Any]) -> str:
        raise NotImplementedError

    def write_error(self, name: str, reason: str) -> str:
        return f"<tool_call>\n{_json({'name': name, 'error': reason})}\n</tool_call>"

    def describe(self, tool: Tool) -> str:
        if tool.instructions is not None:
            return tool.instructions
        return json.dumps(schema(tool)["function"])

    def example(self, tool: Tool) -> str:
        return self.write(tool, example_arguments(tool.parameters))

    def instructions(self, tools: Sequence[Tool]) -> str:
        lines = ["You may call a tool before you answer. The tools:"]
        for tool in tools:
            lines += [self.describe(tool), f"To call it, write:\n{self.example(tool)}"]
        lines.append("The result comes back as the next message.")
        return "\n".join(lines)

    def results(self, named: Sequence[tuple[str, str]]) -> str:
        return "\n".join(f"Result of {name}:\n{text}" for name, text in named)


class GemFormat(_Format):
    """GEM's tags."""

    name = "gem"

    def parse(self, text: str, tools: Sequence[Tool]) -> list[ToolCall]:
        inputs = {tool.name: key for tool in tools if (key := text_argument(tool)) is not None}
        opening = _gem_opening(tuple(sorted(inputs)), "python" in inputs)
        calls: list[ToolCall] = []

        def next_call(start: int, end: int) -> tuple[int, bool] | None:
            match = opening.search(text, start, end)
            if match is None:
                return None
            call, after = self._read(text, match, inputs)
            is_json = (match["tag"] or "").lower() == "tool_call"
            # thinking may name a tag that the answer then opens
            again = not is_json and after > end and opening.search(text, end, after) is not None
            return (match.end(), False) if call.error is not None or again else (after, True)

        position = after_thinking(text, next_call)
        while len(calls) < MAX_CALLS and (match := opening.search(text, position)):
            call, position = self._read(text, match, inputs)
            calls.append(checked(call, tools))
        return calls

    def _read(self, text: str, match: re.Match[str], inputs: Mapping[str, str]) -> tuple[ToolCall, int]:
        start = match.end()
        if fence := match["fence"]:
            closing = re.compile(rf"^[ \t]*{fence}", re.MULTILINE).search(text, start)
            if closing is None:
                return ToolCall("python", end=len(text), error="the code block is not closed"), len(text)
            code = text[start : closing.start()]
            return ToolCall("python", {inputs["python"]: code}, closing.end()), closing.end()
        tag = match["tag"]
        name = _known(tag, inputs)
        close = text.find(f"</{tag}>", start)
        if close < 0:
            return ToolCall(name, end=len(text), error=f"<{tag}> is not closed with </{tag}>"), len(text)
        content, end = text[start:close], close + len(tag) + 3
        if name and not inputs[name]:  # a tool without arguments
            return with_json(name, content, end), end
        if name:
            return ToolCall(name, {inputs[name]: _without_fence(content)}, end), end
        if content.lstrip().startswith("{"):  # JSON as in the format hermes, which many models write anyway
            return json_call(text, start, f"</{tag}>")
        arguments = text.find("<arguments>", start)
        if 0 <= arguments < close:  # the JSON object may contain the closing tags
            call, after = json_arguments("", text, arguments + len("<arguments>"), "</arguments>")
            close = text.find(f"</{tag}>", after) if call.error is None else close
            if close >= after:
                content, end = text[start:close], close + len(tag) + 3
        return self._tool_call(content, end), end

    def _tool_call(self, content: str, end: int) -> ToolCall:
        name, arguments = (_inner(content, tag) for tag in ("tool_name", "arguments"))
        if name is None:
            return ToolCall("", end=end, error="expected a JSON object or <tool_name>...</tool_name>")
        name = name.strip()
        if arguments is None:
            return ToolCall(name, end=end, error="there is no <arguments>{...}</arguments> in <tool_call>")
        return with_json(name, arguments, end)

    def write(self, tool: Tool, arguments: Mapping[str, Any]) -> str:
        key = text_argument(tool)
        if key is not None and set(arguments) == ({key} - {""}) and isinstance(arguments.get(key, ""), str):
            return (
                f"<{tool.name}>{arguments.get(key, '')}</{tool.name}>"  # nothing for a tool without arguments
            )
        return (
            f"<tool_call><tool_name>{tool.name}</tool_name>"
            f"<arguments>{_json(arguments)}</arguments></tool_call>"
        )


class HermesFormat(_Format):
    """JSON in tags, the format of Qwen and Hermes models."""

    name = "hermes"

    def parse(self, text: str, tools: Sequence[Tool]) -> list[ToolCall]:
        calls: list[ToolCall] = []

        def next_call(start: int, end: int) -> tuple[int, bool] | None:
            opening = text.find("<tool_call>", start, end)
            if opening < 0:
                return None
            call, after = json_call(text, opening + len("<tool_call>"), "</tool_call>")
            return (opening + len("<tool_call>"), False) if call.error is not None else (after, True)

        position = after_thinking(text, next_call)
        while len(calls) < MAX_CALLS and (start := text.find("<tool_call>", position)) >= 0:
            call, position = json_call(text, start + len("<tool_call>"), "</tool_call>")
            calls.append(checked(call, tools))
        return calls

    def write(self, tool: Tool, arguments: Mapping[str, Any]) -> str:
        return f"<tool_call>\n{_json({'name': tool.name, 'arguments': arguments})}\n</tool_call>"

    def results(self, named: Sequence[tuple[str, str]]) -> str:
        return "\n".join(f"<tool_response>\n{text}\n</tool_response>" for _, text in named)


class LlamaFormat(_Format):
    """The formats of Llama models. JSON and lists count only if the response begins with them."""

    name = "llama"

    def parse(self, text: str, tools: Sequence[Tool]) -> list[ToolCall]:
        def next_call(start: int, end: int) -> tuple[int, bool] | None:
            call = next(self._calls(text, start), None)
            if call is None or call.error is not None:
                opening = _FUNCTION.search(text, start, end)
                return None if opening is None else (opening.end(), False)
            return (call.end, True) if call.end > end else None

        position = after_thinking(text, next_call)
        return [checked(call, tools) for call in self._calls(text, position)][:MAX_CALLS]

    def _calls(self, text: str, position: int) -> Iterator[ToolCall]:
        begin = _LLAMA_START.match(text, position)
        position = begin.end() if begin else position
        if text.startswith("{", position) and _NAME_KEY.match(text, position):
            yield from self._objects(text, position)
        elif text.startswith("[", position) and _LIST_CALL.match(text, position):
            yield from self._list(text, position)
        else:
            yield from self._functions(text, position)

    def _objects(self, text: str, position: int) -> Iterator[ToolCall]:
        for _ in range(MAX_CALLS):
            call, position = json_call(text, position, None)
            yield call
            following = _SEPARATOR.match(text, position)
            if call.error or following is None:
                return
            position = following.end() - 1

    def _functions(self, text: str, position: int) -> Iterator[ToolCall]:
        for _ in range(MAX_CALLS):
            match = _FUNCTION.search(text, position)
            if match is None:
                return
            call, position = json_arguments(match[1], text, match.end(), "</function>")
            yield call

    def _list(self, text: str, position: int) -> Iterator[ToolCall]:
        end = len(text.rstrip())
        calls = literals.read_calls(text[position:end])
        line = text.find("]\n", position)
        if isinstance(calls, str) and line >= 0:  # more text may follow the list
            end = line + 1
            calls = literals.read_calls(text[position:end])
        if isinstance(calls, str):
            yield ToolCall("", end=end, error=calls)
        else:
            yield from (ToolCall(name, arguments, end) for name, arguments in calls)

    def write(self, tool: Tool, arguments: Mapping[str, Any]) -> str:
        return _json({"name": tool.name, "parameters": arguments})

    def write_error(self, name: str, reason: str) -> str:
        return _json({"name": name, "error": reason})

    def results(self, named: Sequence[tuple[str, str]]) -> str:
        return "\n".join(text for _, text in named)


FORMATS: Registry[CallFormat] = Registry("call format")
for _form in (GemFormat(), HermesFormat(), LlamaFormat()):
    FORMATS.register(_form.name, _form)


def get_format(name: str) -> CallFormat:
    """Return the call format of that name.

    Raises:
        UnknownName: There is none; the message holds the closest names.
    """
    return FORMATS.get(name)


def text_argument(tool: Tool) -> str | None:
    """Return the argument set by plain text in a tag: the only required one, if it is a string.

    It may also be null. The result is empty for a tool without arguments, and None for any other tool.
    """
    schema = tool.parameters
    properties = properties_of(schema)
    if not properties:
        others = schema.get("additionalProperties") not in (None, False)
        return None if others or any(keyword in schema for keyword in OPEN) else ""
    names = required_of(schema) or list(properties)
    kinds = kinds_of(schema, properties.get(names[0])) - {"null"} if len(names) == 1 else set()
    return names[0] if kinds == {"string"} else None


# -- plumbing ---------------------------------------------------------------------------------

_LLAMA_START = re.compile(r"\s*(?:<\|python_tag\|>)?\s*")
_NAME_KEY = re.compile(r'\{\s*"(?:name|type|function|parameters|arguments)"')
_LIST_CALL = re.compile(r"\[\s*[A-Za-z][\w.-]{0,80}\(")
_SEPARATOR = re.compile(r"\s*[;,]?\s*(?:<\|python_tag\|>)?\s*\{")
_FUNCTION = re.compile(r"<function=([^>\s]{1,200})>")


def _gem_opening(names: tuple[str, ...], python: bool) -> re.Pattern[str]:
    tags = "|".join(map(re.escape, (*names, "tool_call")))
    fence = (
        r"|^[ \t]*(?P<fence>`{3,}|~{3,})[ \t]*(?:python|py|python3)[ \t]*\n" if python else "|(?P<fence>(?!))"
    )
    return re.compile(rf"<(?P<tag>{tags})>{fence}", re.MULTILINE | re.IGNORECASE)


def _json(value: Any) -> str:
    """Return JSON in which no text of a call looks like a closing tag."""
    return json.dumps(value).replace("</", "<\\/")


def _known(tag: str, names: Collection[str]) -> str:
    """Return the tool name of a tag, ignoring case; empty for ``tool_call``."""
    return tag if tag in names else next((name for name in names if name.lower() == tag.lower()), "")


def _inner(content: str, tag: str) -> str | None:
    start = content.find(f"<{tag}>")
    end = content.rfind(f"</{tag}>")
    return None if start < 0 or end < start else content[start + len(tag) + 2 : end]


def _without_fence(content: str) -> str:
    """Remove a fence inside the tags, because models write both."""
    stripped = content.strip()
    head, line, body = stripped.partition("\n")
    if line and head.startswith("```") and body.rstrip().endswith("```"):
        return body.rstrip()[:-3]
    return content
