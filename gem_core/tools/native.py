"""Native tool calls of chat templates (``tools=``) and of chat APIs.

An environment takes text. `native_text` therefore writes the ``tool_calls`` of a chat API in the format that
the environment reads, so a trace holds the same kind of action whichever way a model called the tools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from gem_core.errors import UnknownName
from gem_core.tools.base import Tool
from gem_core.tools.formats import MAX_CALLS, CallFormat, get_format, schema
from gem_core.tools.reading import ToolCall, checked, with_arguments


class CallReader(Protocol):
    """A wrapper or an environment that reads tool calls in responses; see `Env.call_readers`."""

    instructions: bool | str
    """Whether the first observation explains the tools, or the text that does."""

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools."""

    @property
    def format(self) -> CallFormat:
        """Format of the calls."""

    @property
    def call_results(self) -> Sequence[tuple[str, str]]:
        """Names of the tools that the last response called and the results; empty if it called none."""


def native_format(tokenizer: Any) -> CallFormat:
    """Return the format in which the chat template of a tokenizer writes tool calls.

    A call is rendered by the template as ``tool_calls`` of an assistant's message, and each format tries to
    parse the result.

    Raises:
        UnknownName: The template does not support tool calls, or writes them in an unknown format.
    """

    class Probe(Tool):
        name = "probe_tool"
        description = "A tool."
        parameters = {"type": "object", "properties": {"key": {"type": "string"}}}  # noqa: RUF012

    call = {"type": "function", "function": {"name": "probe_tool", "arguments": {"key": "value"}}}
    messages = [
        {"role": "user", "content": "Call it."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]
    try:
        text = tokenizer.apply_chat_template(messages, tools=[schema(Probe())], tokenize=False)
        bare = tokenizer.apply_chat_template(messages[:1], tools=[schema(Probe())], tokenize=False)
    except Exception as error:  # templates are programs
        raise UnknownName(f"the chat template does not support tool calls: {error}") from error
    written = text[len(bare) :] if text.startswith(bare) else text
    for form in map(get_format, ("hermes", "gem", "llama")):
        brace = written.find("{") if form.name == "llama" else 0
        for parsed in form.parse(written[max(0, brace) :], [Probe()]):
            if parsed.error is None and dict(parsed.arguments) == {"key": "value"}:
                return form
    raise UnknownName(f"the chat template writes tool calls in an unknown format: {written[:200]!r}")


def native_calls(message: Mapping[str, Any], tools: Sequence[Tool]) -> list[ToolCall]:
    """Return the calls of an assistant's message in the format of chat APIs, ``{"tool_calls": [...]}``."""
    calls = []
    for entry in list(message.get("tool_calls") or ())[:MAX_CALLS]:
        function = entry.get("function") if isinstance(entry, Mapping) else None
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
