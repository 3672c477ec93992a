"""The parts that parsers of calls share: `ToolCall`, the end of the thinking, and calls in JSON.

A call that cannot be read becomes a `ToolCall` that states the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from gem_chat._calls.schema import problem
from gem_chat.tools import Tool, ToolCall
from gem_core._util.foreign_json import finite_float, is_shallow

MAX_CALLS = 64
"""Maximum number of calls per response, which also keeps the parsers linear on hostile text."""


def checked(call: ToolCall, tools: Sequence[Tool]) -> ToolCall:
    """Return the call, with an error if the tool is unknown or its arguments do not match the schema."""
    if call.error is not None:
        return call
    known = {tool.name: tool for tool in tools}
    if call.name not in known:
        same = [name for name in known if name.lower() == call.name.lower()]
        if len(same) == 1:  # "Python" for "python"
            return checked(replace(call, name=same[0]), tools)
        error = f'there is no tool "{call.name[:80]}"; there are: {", ".join(known)}'
    else:
        message = problem(known[call.name].parameters, dict(call.arguments))
        if message is None:
            return call
        error = message
    return replace(call, error=error)


NextCall: TypeAlias = Callable[[int, int], "tuple[int, bool] | None"]
"""Reads the first call that opens between two positions: the end of the call and True, or if it cannot be
read, the end of its opening and False. None if no call opens there."""


def after_thinking(
    text: str, next_call: NextCall, opening: str = "<think>", closing: str = "</think>"
) -> int:
    """Return the position after the thinking; a `closing` in the arguments of a call does not end it."""
    position = after = 0
    if text.lstrip().startswith(opening) and (first := text.find(closing)) >= 0:
        position = after = first + len(closing)
    for _ in range(MAX_CALLS):
        end = text.find(closing, position)
        if end < 0:
            return after
        opened = next_call(position, end)
        if opened is None:
            position = after = end + len(closing)
        else:
            position = opened[0]
    return text.rfind(closing) + len(closing)


def json_call(text: str, position: int, closing: str | None) -> tuple[ToolCall, int]:
    """Parse ``{"name": ..., "arguments": ...}``; return the call and the position after it."""
    brace = _skip_blanks(text, position)
    value, end = _read_json(text, brace)
    after = _skip_blanks(text, end)
    if closing is not None and text.startswith(closing, after):
        end = after + len(closing)
    elif closing is not None and not isinstance(value, _Wrong) and after < len(text):
        value = _Wrong(f"there is other text between the JSON object and {closing}")
    if isinstance(value, _Wrong):
        close = text.find(closing, brace) if closing is not None else -1
        end = close + len(closing) if closing is not None and close >= 0 else len(text)
        return ToolCall("", end=end, error=value.why), end
    return call_of(value, end), end


def call_of(value: Any, end: int) -> ToolCall:
    """Return the call that a JSON value holds, with its id if it has one.

    An ``error`` instead of arguments makes a call that is answered with that reason.
    """
    if not isinstance(value, dict):
        return ToolCall("", end=end, error="a call is a JSON object with name and arguments")
    id = next((str(value[key]) for key in ("id", "tool_call_id") if key in value), "")
    inner = value.get("function")
    if isinstance(inner, dict):  # the form of chat APIs
        value = inner
    name = value.get("name", value.get("tool_name", inner))
    keys = [key for key in ("arguments", "parameters") if key in value]
    if not keys and isinstance(error := value.get("error"), str) and error:
        return ToolCall(name if isinstance(name, str) else "", end=end, error=error, id=id)
    if not isinstance(name, str) or not name:
        return ToolCall("", end=end, error='the JSON object has no "name" of a tool', id=id)
    return replace(with_arguments(name, value[keys[0]] if keys else {}, end), id=id)


def json_values(text: str, position: int) -> tuple[list[Any] | str, int]:
    """Return the JSON values of a list, or of objects that follow each other, and the position after them.

    The values are a str with the reason if they cannot be read.
    """
    start = after = _skip_blanks(text, position)
    if not text.startswith("{", start):
        value, after = _read_json(text, start)
        if isinstance(value, _Wrong):
            return value.why, after
        return value if isinstance(value, list) else [value], after
    values: list[Any] = []
    while len(values) < MAX_CALLS and text.startswith("{", start):
        value, after = _read_json(text, start)
        if isinstance(value, _Wrong):
            return value.why, after
        values.append(value)
        start = _skip_blanks(text, after)
    return values, after


def json_object(name: str, text: str, position: int) -> tuple[ToolCall, int]:
    """Parse the JSON object of arguments at `position`; return the call and the position after it."""
    value, end = _read_json(text, _skip_blanks(text, position))
    if isinstance(value, _Wrong):
        return ToolCall(name, end=position, error=value.why), position
    return with_arguments(name, value, end), end


def json_value(text: str) -> tuple[Any, bool]:
    """Return the value of a whole text and whether it is JSON."""
    value, end = _read_json(text, _skip_blanks(text, 0))
    fine = not isinstance(value, _Wrong) and _skip_blanks(text, end) == len(text)
    return (value, True) if fine else (None, False)


def json_arguments(name: str, text: str, position: int, closing: str) -> tuple[ToolCall, int]:
    """Parse the JSON object of arguments before `closing`; return the call and the position after it.

    A closing tag inside a string of the object does not end it. At the end of the text, the closing tag may
    be missing, because it may be a stop string.
    """
    start = _skip_blanks(text, position)
    _, stop = _read_json(text, start)
    after = _skip_blanks(text, stop)
    close = after if stop > start and text.startswith(closing, after) else text.find(closing, position)
    close = len(text) if close < 0 else close
    end = min(len(text), close + len(closing))
    return with_json(name, text[position:close], end), end


def with_json(name: str, text: str, end: int) -> ToolCall:
    """Return a call whose arguments are the JSON object `text`; blank text means no arguments."""
    start = _skip_blanks(text, 0)
    if start == len(text):
        return ToolCall(name, {}, end)
    value, stop = _read_json(text, start)
    if isinstance(value, _Wrong):
        return ToolCall(name, end=end, error=value.why)
    if _skip_blanks(text, stop) < len(text):
        return ToolCall(name, end=end, error="there is other text after the JSON object of the arguments")
    return with_arguments(name, value, end)


def with_arguments(name: str, arguments: Any, end: int) -> ToolCall:
    """Return a call with `arguments`, which must be an object or the JSON text of one."""
    if isinstance(arguments, str):  # JSON in a JSON string: chat APIs and some models
        read, stop = _read_json(arguments, _skip_blanks(arguments, 0))
        if isinstance(read, _Wrong):
            return ToolCall(name, end=end, error=read.why)
        arguments = read if _skip_blanks(arguments, stop) == len(arguments) else arguments
    if not isinstance(arguments, dict):
        return ToolCall(name, end=end, error="the arguments are not a JSON object")
    return ToolCall(name, arguments, end)


@dataclass(frozen=True)
class _Wrong:
    why: str


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant, parse_float=finite_float, strict=False)


def _read_json(text: str, position: int) -> tuple[Any, int]:
    """Parse a JSON value; return the value (or a `_Wrong` with the reason) and the position after it.

    A few commas before closing brackets are ignored, because models write them.
    """
    wrong = _Wrong("")
    for _ in range(_MOST_COMMAS + 1):
        try:
            value, end = _DECODER.raw_decode(text, position)
            return (value if is_shallow(value) else _Wrong("invalid JSON: it is nested too deeply")), end
        except json.JSONDecodeError as error:
            where = f"at {text[error.pos : error.pos + 20]!r}" if error.pos < len(text) else "at the end"
            wrong = _Wrong(f"invalid JSON: {error.msg} {where}")
            near = _TRAILING_COMMA.finditer(text, max(position, error.pos - 100), error.pos + 100)
            comma = next((m.start() for m in near if m.start() <= error.pos < m.end()), None)
            if comma is None:
                break
            text = f"{text[:comma]} {text[comma + 1 :]}"
        except (ValueError, RecursionError) as error:
            return _Wrong(f"invalid JSON: {error}"), position
    return wrong, position


_MOST_COMMAS = 8
_TRAILING_COMMA = re.compile(r",\s*[}\]]")
_BLANKS = re.compile(r"[ \t\r\n]*")


def _skip_blanks(text: str, position: int) -> int:
    match = _BLANKS.match(text, position)
    return match.end() if match else position
