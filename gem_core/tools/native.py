"""Native tool calls of chat templates (``tools=``) and of chat APIs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gem_core.errors import UnknownName
from gem_core.tools.base import Tool
from gem_core.tools.formats import MAX_CALLS, CallFormat, get_format, schema
from gem_core.tools.reading import ToolCall, checked, with_arguments


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
