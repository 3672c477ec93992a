"""Syntaxes with a grammar of their own: Gemma 4, gpt-oss (harmony), Llama, and lists of calls in Python."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gem_chat._calls import literals
from gem_chat._calls.formats import get_format
from gem_chat._calls.reading import MAX_CALLS, checked, json_object
from gem_chat._calls.syntaxes.base import MarkedSyntax, closed
from gem_chat.tools import Tool, ToolCall
from gem_core._util.foreign_json import finite_float


class LlamaSyntax:
    """The format ``llama``, in which a response consists of JSON objects or of a list in Python."""

    name = "llama"

    def parse(self, text: str, tools: Sequence[Tool]) -> list[ToolCall]:
        """Return the calls of a response in order."""
        return get_format("llama").parse(text, tools)

    def write(self, calls: Sequence[ToolCall]) -> str:
        """Return calls as a model writes them."""
        return "; ".join(json.dumps({"name": one.name, "parameters": dict(one.arguments)}) for one in calls)


@dataclass(frozen=True)
class PythonSyntax(MarkedSyntax):
    """A list of calls in Python between two markers, as LFM2 writes it."""

    markers: tuple[str, str] = ("", "")

    def read(self, text: str, match: re.Match[str], tools: Sequence[Tool]) -> tuple[list[ToolCall], int]:
        """Return the calls of a list."""
        closing = self.markers[1].strip()
        found: list[tuple[str, dict[str, Any]]] | str = ""
        reason, first = "", 0
        place, end = match.end(), len(text)
        for _ in range(_MOST_ENDS):  # a text of a call may hold the closing marker
            place = text.find(closing, place)
            stop = len(text) if place < 0 else place
            end = len(text) if place < 0 else place + len(closing)
            found = literals.read_calls(text[match.end() : stop].strip())
            if not isinstance(found, str):
                break
            reason, first = reason or found, first or end
            if place < 0:
                break
            place = end
        if isinstance(found, str):
            return [ToolCall("", error=reason)], first
        calls = [ToolCall(name, arguments) for name, arguments in found]
        return calls or [ToolCall("", error="the list of calls is empty")], end

    def write(self, calls: Sequence[ToolCall]) -> str:
        """Return calls as a model writes them."""
        texts = [
            f"{call.name}({', '.join(f'{key}={value!r}' for key, value in call.arguments.items())})"
            for call in calls
        ]
        return f"{self.markers[0]}[{', '.join(texts)}]{self.markers[1]}"


_MOST_ENDS = 8


@dataclass(frozen=True)
class GemmaSyntax(MarkedSyntax):
    """Gemma 4: ``<|tool_call>call:name{key:<|"|>text<|"|>,count:3}<tool_call|>``."""

    def read(self, text: str, match: re.Match[str], tools: Sequence[Tool]) -> tuple[list[ToolCall], int]:
        """Return the call that a marker opens."""
        header = _GEMMA_HEADER.match(text, match.end())
        name = "" if header is None else header[1]
        try:
            if header is None:
                raise ValueError("expected call:name{...}")
            arguments, position = _gemma_object(text, header.end() - 1, 0)
            end = closed(text, position, "<tool_call|>")
            if end is None:
                raise ValueError("there is other text between the arguments and <tool_call|>")
        except ValueError as error:
            place = text.find("<tool_call|>", match.end())
            after = len(text) if place < 0 else place + len("<tool_call|>")
            return [ToolCall(name, error=str(error))], after
        return [ToolCall(name, arguments)], end

    def write_one(self, call: ToolCall, index: int) -> str:
        """Return a call as a model writes it."""
        return f"<|tool_call>call:{call.name}{_gemma_text(dict(call.arguments))}<tool_call|>"


_GEMMA_HEADER = re.compile(r"\s{0,8}call:\s{0,8}([^\s{}<>:]{1,200})\s{0,8}\{")
_GEMMA_KEY = re.compile(r'\s{0,8}(?:<\|"\|>)?([^:{}\[\]<>,"\s][^:{}\[\]<>,"\n]{0,200}?)(?:<\|"\|>)?\s{0,8}:')
_GEMMA_ATOM = re.compile(r"\s{0,8}(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|True|False|None)")
_GEMMA_QUOTE = '<|"|>'
_GEMMA_WORDS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_DEEPEST = 50


def _gemma_value(text: str, position: int, depth: int) -> tuple[Any, int]:
    """Return the value at a position and the position after it.

    Raises:
        ValueError: There is no value.
    """
    while position < len(text) and text[position] in " \n\t":
        position += 1
    if depth > _DEEPEST:
        raise ValueError("the arguments are nested too deeply")
    if text.startswith(_GEMMA_QUOTE, position):
        start = position + len(_GEMMA_QUOTE)
        end = text.find(_GEMMA_QUOTE, start)
        if end < 0:
            raise ValueError(f"a text is not closed with {_GEMMA_QUOTE}")
        return text[start:end], end + len(_GEMMA_QUOTE)
    if text.startswith("{", position):
        return _gemma_object(text, position, depth)
    if text.startswith("[", position):
        return _gemma_list(text, position, depth)
    match = _GEMMA_ATOM.match(text, position)
    if match is None:
        raise ValueError(f"expected a value at {text[position : position + 20]!r}")
    word = match[1]
    if word in _GEMMA_WORDS:
        return _GEMMA_WORDS[word], match.end()
    return (int(word) if re.fullmatch(r"-?\d{1,4000}", word) else finite_float(word)), match.end()


def _gemma_object(text: str, position: int, depth: int) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    position += 1
    while not (end := _GEMMA_CLOSE.match(text, position)):
        key = _GEMMA_KEY.match(text, position)
        if key is None:
            raise ValueError(f"expected key:value at {text[position : position + 20]!r}")
        found[key[1].strip()], position = _gemma_value(text, key.end(), depth + 1)
        position = _gemma_comma(text, position)
    return found, end.end()


def _gemma_list(text: str, position: int, depth: int) -> tuple[list[Any], int]:
    found: list[Any] = []
    position += 1
    while not (end := _GEMMA_CLOSE.match(text, position)):
        value, position = _gemma_value(text, position, depth + 1)
        found.append(value)
        position = _gemma_comma(text, position)
    return found, end.end()


_GEMMA_CLOSE = re.compile(r"\s{0,8}[}\]]")
_GEMMA_COMMA = re.compile(r"\s{0,8},")


def _gemma_comma(text: str, position: int) -> int:
    """Return the position after a comma, or before the closing bracket."""
    match = _GEMMA_COMMA.match(text, position)
    if match is None and not _GEMMA_CLOSE.match(text, position):
        raise ValueError(f"expected a comma or a closing bracket at {text[position : position + 20]!r}")
    return position if match is None else match.end()


def _gemma_text(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_gemma_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_gemma_text, value)) + "]"
    return f"{_GEMMA_QUOTE}{value}{_GEMMA_QUOTE}" if isinstance(value, str) else json.dumps(value)


class HarmonySyntax:
    """The messages of gpt-oss: a call is a message to ``functions.name`` with JSON as its text."""

    name = "harmony"

    def parse(self, text: str, tools: Sequence[Tool]) -> list[ToolCall]:
        """Return the calls of a response in order."""
        calls: list[ToolCall] = []
        start = 0
        while len(calls) < MAX_CALLS and (message := _MESSAGE.search(text, start)):
            header_start = max(text.rfind("<|start|>", start, message.start()), start)
            recipient = _RECIPIENT.search(text, header_start, message.start())
            start = message.end()
            if recipient is None:
                end = _MESSAGE_END.search(text, start)
                start = len(text) if end is None else end.start()
                continue
            call, end_of_call = json_object(recipient[1], text, start)
            if call.error is None and not _MESSAGE_END.match(text, _past_blanks(text, end_of_call)):
                call = ToolCall(call.name, error="there is other text after the JSON object")
            if call.error is not None:
                end = _MESSAGE_END.search(text, start)
                end_of_call = len(text) if end is None else end.start()
            start = end_of_call
            opened = (text.find(mark, header_start, message.start()) for mark in ("<|start|>", "<|channel|>"))
            begins = min([recipient.start(), *(place for place in opened if place >= 0)])
            calls.append(replace(checked(call, tools), start=begins, end=end_of_call))
        return calls

    def write(self, calls: Sequence[ToolCall]) -> str:
        """Return calls as a model writes them, after the opening ``<|start|>assistant`` of its turn."""
        return "<|call|><|start|>assistant".join(
            f"<|channel|>commentary to=functions.{call.name} <|constrain|>json<|message|>"
            f"{json.dumps(dict(call.arguments))}"
            for call in calls
        )


_MESSAGE = re.compile(r"<\|message\|>")
_MESSAGE_END = re.compile(r"<\|(?:end|call|return|start|channel)\|>|\Z")
_RECIPIENT = re.compile(r"\s?to=(?:functions\.)?(?!assistant\b|user\b)([^\s<>]{1,200})")


def _past_blanks(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \n\t\r":
        position += 1
    return position


OWN_SYNTAXES = (
    HarmonySyntax(),
    GemmaSyntax(
        "gemma4", re.compile(r"<\|tool_call>"), between="", thinking=("<|channel>thought", "<channel|>")
    ),
    PythonSyntax(
        "lfm2", re.compile(r"<\|tool_call_start\|>"), markers=("<|tool_call_start|>", "<|tool_call_end|>")
    ),
    PythonSyntax("olmo", re.compile("<function_calls>"), markers=("<function_calls>", "</function_calls>")),
    LlamaSyntax(),
)
