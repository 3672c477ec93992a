"""Syntaxes in which each argument of a call has its own tags, as in XML, and its value is plain text."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gem_chat._calls.reading import json_value
from gem_chat._calls.schema import kinds_of, properties_of
from gem_chat._calls.syntaxes.base import MarkedSyntax, closed
from gem_chat.tools import Tool, ToolCall


@dataclass(frozen=True)
class TaggedSyntax(MarkedSyntax):
    """A marker, the name of a tool, and then arguments between tags.

    A text is written as it is, so an argument that holds the closing tags of a call cannot be told from the
    end of the call. An argument may hold anything else, including its own closing tag.

    Attributes:
        header: Pattern of what follows the marker, with the group ``name``.
        key: Pattern that opens an argument, with the group ``key`` and optionally ``text``, which says
            whether the value is a text: "true", "false", "string", or another type.
        value_end: Text after a value, with the field ``key``.
        closing: Tags after the arguments; all but the first may be missing at the end of a response.
        forms: Texts of the marker with the fields ``name`` and ``number``, of an argument with the fields
            ``key``, ``value``, ``text``, and ``type``, and of the end of a call.
        padded: Whether a line break on each side of a value does not belong to it.
    """

    header: re.Pattern[str] = re.compile("")
    key: re.Pattern[str] = re.compile("")
    value_end: str = ""
    closing: tuple[str, ...] = ()
    forms: tuple[str, str, str] = ("", "", "")
    padded: bool = False

    def read(self, text: str, match: re.Match[str], tools: Sequence[Tool]) -> tuple[list[ToolCall], int]:
        """Return the call that a marker opens."""
        header = self.header.match(text, match.end())
        if header is None:
            written = self.forms[0].format(name="name", number=1).strip()
            return [ToolCall("", error=f"expected {written}")], self._end(text, match.end())
        name, position = header["name"].strip(), header.end()
        schema = next((tool.parameters for tool in tools if tool.name == name), {})
        arguments: dict[str, Any] = {}
        while argument := self.key.match(text, position):
            key = argument["key"].strip()
            found = self._value(text, argument.end(), key)
            if found is None:
                reason = f'the argument "{key[:80]}" is not closed with {self.value_end.format(key=key[:80])}'
                return [ToolCall(name, error=reason)], self._end(text, argument.end())
            value, position = found
            if key in arguments:
                reason = f'the argument "{key[:80]}" is given twice'
                return [ToolCall(name, error=reason)], self._end(text, position)
            arguments[key] = self._typed(value, schema, key, argument.groupdict().get("text"))
        after = self._close(text, position)
        if after is None:
            reason = f"expected an argument or {self.closing[0]}"
            return [ToolCall(name, error=reason)], self._end(text, position)
        return [ToolCall(name, arguments)], after

    def _close(self, text: str, position: int) -> int | None:
        """Return the position after all tags that close a call; the last ones may be missing at the end."""
        after: int | None = position
        for tag in self.closing:
            after = None if after is None else closed(text, after, tag)
        return None if after == position and not text[position:].strip() else after

    def _end(self, text: str, position: int) -> int:
        """Return the position after the last closing tag; the end of `text` if there is none."""
        place = text.find(self.closing[-1], position)
        return len(text) if place < 0 else place + len(self.closing[-1])

    def _value(self, text: str, position: int, key: str) -> tuple[str, int] | None:
        """Return the text of a value, and the position after its closing tag; None if it has none.

        A closing tag counts only if an argument or the end of the call follows. Otherwise, it is part of the
        value.
        """
        tag = self.value_end.format(key=key)
        place = text.find(tag, position)
        for _ in range(_MOST_TAGS):
            if place < 0:
                return None
            end = place + len(tag)
            if self.key.match(text, end) or closed(text, end, self.closing[0]) is not None:
                value = text[position:place]
                if self.padded and value.startswith("\n") and value.endswith("\n") and value != "\n":
                    value = value[1:-1]
                return value, end
            place = text.find(tag, end)
        return None

    def _typed(self, value: str, schema: Mapping[str, Any], key: str, text: str | None) -> Any:
        """Return a value in its type: the one that is written, or else the one of the schema."""
        if text in ("true", "string"):
            return value
        kinds = set() if text is not None else kinds_of(schema, properties_of(schema).get(key))
        if kinds == {"string"}:
            return value
        read, fine = json_value(value)
        if not fine and value.strip() in ("True", "False", "None"):  # many templates write Python's names
            read, fine = ast.literal_eval(value.strip()), True
        if not fine or isinstance(read, str):
            return value if text is None else read if fine else value
        if "string" in kinds and not kinds & _kinds_of_value(read):
            return value
        return read

    def write_one(self, call: ToolCall, index: int) -> str:
        """Return a call as a model writes it."""
        begin, argument, end = self.forms
        texts = [begin.format(name=call.name, number=index + 1)]
        for key, value in call.arguments.items():
            is_text = isinstance(value, str)
            written = value if is_text else json.dumps(value)
            kind = "string" if is_text else min(_kinds_of_value(value))
            fields = {"key": key, "value": written, "text": str(is_text).lower(), "type": kind}
            texts.append(argument.format_map(fields))
        return f"{''.join(texts)}{end}"


_MOST_TAGS = 1000
"""Maximum number of closing tags inside of a value."""


def _kinds_of_value(value: Any) -> set[str]:
    """Return the types of a value in schemas."""
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int):
        return {"integer", "number"}
    kinds = {float: "number", list: "array", dict: "object", str: "string"}
    return {kinds.get(type(value), "null")}


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.DOTALL)


_XML_KEY = _pattern(r"\s{0,8}<parameter=(?P<key>[^>\n]{1,200})>")
_ATTRIBUTE = r'name="(?P<name>[^"\n]{1,200})"'


def _glm(name: str, marker: str, end: str, line: str, separator: str = "") -> TaggedSyntax:
    """Return a syntax of GLM's family: the name, and then keys and values.

    Args:
        name: Name of the syntax.
        marker: Opening tag of a call.
        end: What the names of all tags end with.
        line: Text between the tags.
        separator: Tag after the name.
    """
    key, value = f"arg_key{end}", f"arg_value{end}"
    after_name = re.escape(separator) if separator else rf"(?=<{key}>|</)"
    return TaggedSyntax(
        name, _pattern(marker),
        ((f"<tool_calls{end}>\n", f"</tool_calls{end}>") if end else ("", "")), line,
        ("<think>", "</think>") if not end else (f"<think{end}>", f"</think{end}>"),
        header=_pattern(rf"\s*(?P<name>[^\s<>]{{1,200}})\s*{after_name}"),
        key=_pattern(rf"\s{{0,8}}<{key}>(?P<key>[^<]{{1,200}})</{key}>\s{{0,8}}<{value}>"),
        value_end=f"</{value}>", closing=(f"</tool_call{end}>",),
        forms=(
            f"{marker}{{name}}{separator}",
            f"{line}<{key}>{{key}}</{key}>{line}<{value}>{{value}}</{value}>",
            f"{line}</tool_call{end}>",
        ),
    )  # fmt: skip


def _invoke(name: str, prefix: str, section: str, *, typed: bool = False) -> TaggedSyntax:
    """Return a syntax with ``<invoke name="...">``; `prefix` begins the name of each tag."""
    text = ' string="{text}"' if typed else ""
    given = r' string="(?P<text>true|false)"' if typed else ""
    return TaggedSyntax(
        name, _pattern(f"<{prefix}invoke"),
        (f"<{section}>\n", f"\n</{section}>"),
        header=_pattern(rf'\s+{_ATTRIBUTE}\s*>'),
        key=_pattern(rf'\s{{0,8}}<{prefix}parameter\s+name="(?P<key>[^"\n]{{1,200}})"{given}\s*>'),
        value_end=f"</{prefix}parameter>", closing=(f"</{prefix}invoke>",),
        forms=(
            f'<{prefix}invoke name="{{name}}">',
            f'\n<{prefix}parameter name="{{key}}"{text}>{{value}}</{prefix}parameter>',
            f"\n</{prefix}invoke>",
        ),
    )  # fmt: skip


_MM = "]<]minimax[>["
_OPEN, _CLOSE, _SEP = "<|open|>", "<|close|>", "<|sep|>"

TAGGED_SYNTAXES = (
    TaggedSyntax(
        "xml", _pattern("<tool_call>"), header=_pattern(r"\s*<function=(?P<name>[^>\n]{1,200})>"),
        key=_XML_KEY, value_end="</parameter>", closing=("</function>", "</tool_call>"), padded=True,
        forms=(
            "<tool_call>\n<function={name}>\n", "<parameter={key}>\n{value}\n</parameter>\n",
            "</function>\n</tool_call>",
        ),
    ),
    TaggedSyntax(
        "seed", _pattern("<seed:tool_call>"), thinking=("<seed:think>", "</seed:think>"),
        header=_pattern(r"\s*<function=(?P<name>[^>\n]{1,200})>"),
        key=_XML_KEY, value_end="</parameter>", closing=("</function>", "</seed:tool_call>"),
        forms=(
            "<seed:tool_call>\n<function={name}>\n", "<parameter={key}>{value}</parameter>\n",
            "</function>\n</seed:tool_call>",
        ),
    ),
    _glm("glm", "<tool_call>", "", "\n"),
    _glm("hy3", "<tool_call:opensource>", ":opensource", "\n", "<tool_sep:opensource>"),
    _invoke("minimax-m2", "", "minimax:tool_call"),
    _invoke("deepseek-v3.2", "｜DSML｜", "｜DSML｜function_calls", typed=True),
    _invoke("deepseek-v4", "｜DSML｜", "｜DSML｜tool_calls", typed=True),
    _invoke("muse", "atem:", "atem:function_calls"),
    TaggedSyntax(
        "minicpm", _pattern(r"<function\s+name="), header=_pattern(r'"(?P<name>[^"\n]{1,200})"\s*>'),
        key=_pattern(r'\s{0,8}<param\s+name="(?P<key>[^"\n]{1,200})"\s*>'),
        value_end="</param>", closing=("</function>",),
        forms=('<function name="{name}">', '<param name="{key}">{value}</param>', "</function>"),
    ),
    TaggedSyntax(
        "minimax-m3", _pattern(re.escape(f"{_MM}<invoke")),
        (f"{_MM}<tool_call>\n", f"\n{_MM}</tool_call>"), thinking=("<mm:think>", "</mm:think>"),
        header=_pattern(rf"\s+{_ATTRIBUTE}>"),
        key=_pattern(rf"\s{{0,8}}{re.escape(_MM)}<(?P<key>[^<>/\s]{{1,200}})>"),
        value_end=f"{_MM}</{{key}}>", closing=(f"{_MM}</invoke>",),
        forms=(
            f'{_MM}<invoke name="{{name}}">', f"{_MM}<{{key}}>{{value}}{_MM}</{{key}}>", f"{_MM}</invoke>"
        ),
    ),
    TaggedSyntax(
        "kimi-k3", _pattern(re.escape(f"{_OPEN}call")),
        (f"{_OPEN}tools{_SEP}", f"{_CLOSE}tools{_SEP}"), "",
        (f"{_OPEN}think{_SEP}", f"{_CLOSE}think{_SEP}"),
        header=_pattern(rf'\s+tool="(?P<name>[^"\n]{{1,200}})"[^<\n]{{0,40}}{re.escape(_SEP)}'),
        key=_pattern(
            rf'{re.escape(_OPEN)}argument key="(?P<key>[^"\n]{{1,200}})" type="(?P<text>\w{{1,20}})"'
            rf"{re.escape(_SEP)}"
        ),
        value_end=f"{_CLOSE}argument{_SEP}", closing=(f"{_CLOSE}call{_SEP}",),
        forms=(
            f'{_OPEN}call tool="{{name}}" index="{{number}}"{_SEP}',
            f'{_OPEN}argument key="{{key}}" type="{{type}}"{_SEP}{{value}}{_CLOSE}argument{_SEP}',
            f"{_CLOSE}call{_SEP}",
        ),
    ),
)  # fmt: skip
"""The syntaxes; those that share a marker are in the order in which they are tried."""
