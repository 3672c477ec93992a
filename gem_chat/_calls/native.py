"""Native tool calls of chat templates (``tools=``) and of chat APIs.

An environment takes text. `native_text` therefore writes the ``tool_calls`` of a chat API in the format that
the environment reads, so a trace holds the same kind of action whichever way a model called the tools.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from gem_chat._calls.formats import get_format
from gem_chat._calls.reading import MAX_CALLS, checked, with_arguments
from gem_chat._calls.syntaxes import ALL, Syntax
from gem_chat._openings import common_prefix, with_asked_openings
from gem_chat._tools import CallFormat, CallReader, schema
from gem_chat.tools import Tool, ToolCall
from gem_core.errors import UnknownName


class RenderCalls(Protocol):
    """Interface of a function that turns messages with ``tool_calls`` into the text of a prompt."""

    def __call__(self, messages: Sequence[Mapping[str, Any]], *, generate: bool) -> str:
        """Return the text; it ends with the opening of an answer if `generate`."""
        ...


class ProbeTool(Tool):
    """The tool that a chat template is probed with."""

    name = "probe_tool"
    description = "A tool."
    parameters = {  # noqa: RUF012
        "type": "object",
        "properties": {"key": {"type": "string"}, "count": {"type": "integer"}},
        "required": ["key"],
    }


class NativeCalls(NamedTuple):
    """How a chat template writes calls."""

    syntax: Syntax
    text_arguments: bool
    """Whether the template takes the arguments as JSON text instead of a dict."""
    several: bool
    """Whether the template writes all calls of a message, not only the first one."""
    ids: str
    """Form of the ids that it takes, with the fields ``name`` and ``number``."""

    def message(self, calls: Sequence[ToolCall]) -> dict[str, Any]:
        """Return an assistant's message with calls, as the template takes it."""
        entries = []
        for call in calls if self.several else calls[:1]:
            arguments = dict(call.arguments)
            given = json.dumps(arguments) if self.text_arguments else arguments
            function = {"name": call.name, "arguments": given}
            entries.append({"type": "function", "id": call.id, "function": function})
        return {"role": "assistant", "content": "", "tool_calls": entries}


def native_syntax(tokenizer: Any, chat_template: str | None = None) -> Syntax:
    """Return the syntax in which a chat template writes calls.

        native_syntax(tokenizer).name  # "hermes" for Qwen3

    Args:
        tokenizer: A transformers tokenizer.
        chat_template: Jinja text to use instead of the tokenizer's own template.

    Raises:
        UnknownName: The template does not support tool calls, or writes them in an unknown syntax.
    """

    def render(messages: Sequence[Mapping[str, Any]], *, generate: bool) -> str:
        more = {} if chat_template is None else {"chat_template": chat_template}
        return str(
            tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tools=[schema(ProbeTool())],
                tokenize=False,
                add_generation_prompt=generate,
                **more,
            )
        )

    return find_calls(with_asked_openings(render, tokenizer)).syntax


def find_calls(render: RenderCalls) -> NativeCalls:
    """Determine how a chat template writes calls.

    The template writes calls of `ProbeTool`. The syntax is the one that reads exactly these calls in the
    whole text of the answer; of several, the one that leaves the least text over.

    Raises:
        UnknownName: The template does not support tool calls, or writes them in an unknown syntax.
    """
    question = [{"role": "user", "content": "Call it."}]
    written = reason = ""
    for ids, text_arguments, several in itertools.product(_IDS, (False, True), (True, False)):
        native = NativeCalls(_NONE, text_arguments, several, ids)
        arguments: list[dict[str, Any]] = [{"key": f"sentinel {n}", "count": 70 + n} for n in (1, 2)]
        calls = [
            ToolCall(ProbeTool.name, given, id=ids.format(name=ProbeTool.name, number=n))
            for n, given in enumerate(arguments)
        ]
        try:
            text = render([*question, native.message(calls)], generate=False)
            opening = render(question, generate=True)
        except Exception as error:  # templates are programs
            reason = reason or str(error)
            continue
        written = after_opening(text, opening)
        readers = []
        for syntax in ALL:
            found = syntax.parse(written, [ProbeTool()])
            if [None if one.error else dict(one.arguments) for one in found] == arguments[: 1 + several]:
                readers.append((found[-1].end - found[0].start, syntax))
        if readers:
            return native._replace(syntax=max(readers, key=lambda reader: reader[0])[1])
    if not written:
        raise UnknownName(f"the chat template does not support tool calls: {reason}")
    raise UnknownName(f"the chat template writes tool calls in an unknown syntax: {written[:200]!r}")


_NONE: Any = None
_IDS = ("call{number:05d}", "functions.{name}:{number}")
"""Forms of ids that templates take: 9 letters and digits for Mistral's models, and Kimi's form."""


def after_opening(text: str, opening: str) -> str:
    """Return what a text adds to a prompt, which ends with the opening of an answer.

    Some openings hold more than the text, such as an empty thought. The common part then ends before a tag
    that is common only in part.
    """
    if text.startswith(opening):
        return text[len(opening) :]
    length = len(common_prefix(text, opening))
    tag = text.rfind("<", 0, length)
    return text[tag:] if tag >= 0 and ">" not in text[tag:length] else text[length:]


def native_calls(message: Mapping[str, Any], tools: Sequence[Tool]) -> list[ToolCall]:
    """Return the calls of an assistant's message in the format of chat APIs, ``{"tool_calls": [...]}``.

    An entry with an ``error`` is a call that could not be read, for that reason.
    """
    calls = []
    for entry in list(message.get("tool_calls") or ())[:MAX_CALLS]:
        function = entry.get("function") if isinstance(entry, Mapping) else None
        if isinstance(entry, Mapping) and isinstance(error := entry.get("error"), str):
            calls.append(ToolCall(str((function or {}).get("name") or ""), error=error))
            continue
        if not isinstance(function, Mapping):
            calls.append(ToolCall("", error="the call has no 'function'"))
            continue
        name, arguments = str(function.get("name") or ""), function.get("arguments")
        calls.append(checked(with_arguments(name, {} if arguments is None else arguments, 0), tools))
    return calls


def native_text(message: Mapping[str, Any], readers: Sequence[CallReader]) -> str:
    """Return an assistant's message with ``tool_calls`` as text that `readers` read as the same calls.

    Args:
        message: ``{"content": ..., "tool_calls": [...]}``. The content comes first, and is left out if the
            calls could not be read behind it.
        readers: Readers of the environment, at least one. A call that no reader can carry out is written for
            the first one, which rejects it with the reason.
    """
    tools = [tool for reader in readers for tool in reader.tools]
    texts = []
    for call, entry in zip(native_calls(message, tools), message["tool_calls"], strict=False):
        owner = next((n for n, reader in enumerate(readers) if _tool(call.name, reader.tools)), 0)
        texts.append(_written(call, entry, readers[: owner + 1]))
    calls = "\n".join(texts)
    whole = f"{message.get('content') or ''}\n{calls}".lstrip("\n")
    for reader in readers:
        if _parsed(reader.format, whole, reader.tools) != _parsed(reader.format, calls, reader.tools):
            return calls
    return whole


def _written(call: ToolCall, entry: Any, readers: Sequence[CallReader]) -> str:
    """Return one call in the format of the last reader or, if that does not arrive there, in ``hermes``."""
    *outer, owner = readers
    if isinstance(entry, Mapping) and "error" in entry:
        return owner.format.write_error(call.name, str(call.error))
    tool, arguments = _tool(call.name, owner.tools), call.arguments
    if tool is None or call.error is not None:  # unchanged, for the reader to reject
        function = entry.get("function") if isinstance(entry, Mapping) else None
        tool, arguments = _Named(call.name), (function or {}).get("arguments", "")
    text = owner.format.write(tool, arguments)
    arrives = all(call.name == name for one in outer for name, _ in _parsed(one.format, text, one.tools))
    if arrives and _parsed(owner.format, text, owner.tools) == [
        (call.name, None if call.error else arguments)
    ]:
        return text
    return get_format("hermes").write(tool, arguments)


def _parsed(form: CallFormat, text: str, tools: Sequence[Tool]) -> list[tuple[str, Mapping[str, Any] | None]]:
    """Return name and arguments of each call, without the arguments of a call that is invalid."""
    calls = form.parse(text, tools)
    return [(call.name, None if call.error else call.arguments) for call in calls]


def _tool(name: str, tools: Sequence[Tool]) -> Tool | None:
    return next((tool for tool in tools if tool.name == name), None)


class _Named(Tool):
    """Stands for a tool that does not exist, so that a call of it can be written."""

    parameters = {"type": "object", "properties": {"arguments": {}}}  # noqa: RUF012

    def __init__(self, name: str) -> None:
        self.name = name
