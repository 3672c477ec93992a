"""Interface of the syntaxes, and the search for calls that a marker opens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from gem_chat._calls.reading import MAX_CALLS, after_thinking, checked
from gem_chat.tools import Tool, ToolCall


class Syntax(Protocol):
    """The way in which the models of a family write calls."""

    @property
    def name(self) -> str:
        """Name of the syntax."""

    def parse(self, text: str, tools: Sequence[Tool]) -> list[ToolCall]:
        """Return the calls of a response in order, at most `MAX_CALLS`.

        Args:
            text: The response with its special tokens.
            tools: The tools, whose schemas decide the types of arguments that are written as plain text.
        """
        ...

    def write(self, calls: Sequence[ToolCall]) -> str:
        """Return calls as a model writes them."""
        ...


@dataclass(frozen=True)
class MarkedSyntax:
    """A syntax in which a marker opens a call, or a list of calls.

    Attributes:
        name: Name of the syntax.
        opening: Pattern of the marker.
        section: Texts before the first and after the last call of a response; both may be missing.
        between: Text between two calls.
        thinking: Texts that open and close the thinking, which is not searched for calls.
    """

    name: str
    opening: re.Pattern[str]
    section: tuple[str, str] = ("", "")
    between: str = "\n"
    thinking: tuple[str, str] = ("<think>", "</think>")

    def read(self, text: str, match: re.Match[str], tools: Sequence[Tool]) -> tuple[list[ToolCall], int]:
        """Return the calls that a marker opens, at least one, and the position after them."""
        raise NotImplementedError

    def write_one(self, call: ToolCall, index: int) -> str:
        """Return a call; `index` is its place in the response, from 0."""
        raise NotImplementedError

    def parse(self, text: str, tools: Sequence[Tool]) -> list[ToolCall]:
        """Return the calls of a response in order, as in `Syntax`."""
        calls: list[ToolCall] = []

        def next_call(start: int, end: int) -> tuple[int, bool] | None:
            match = self.opening.search(text, start, end)
            if match is None:
                return None
            found, after = self.read(text, match, tools)
            broken = any(call.error is not None for call in found)
            return (match.end(), False) if broken else (after, True)

        position = after_thinking(text, next_call, *self.thinking)
        while len(calls) < MAX_CALLS and (match := self.opening.search(text, position)):
            found, position = self.read(text, match, tools)
            start = self._section_start(text, match.start())
            calls += [replace(checked(call, tools), start=start, end=position) for call in found]
        calls = calls[:MAX_CALLS]
        if calls and self.section[1]:
            blank = _BLANKS.match(text, calls[-1].end)
            end = calls[-1].end if blank is None else blank.end()
            closing = self.section[1].strip()
            if text.startswith(closing, end):
                calls[-1] = replace(calls[-1], end=end + len(closing))
        return calls

    def write(self, calls: Sequence[ToolCall]) -> str:
        """Return calls as a model writes them."""
        texts = [self.write_one(call, index) for index, call in enumerate(calls)]
        return f"{self.section[0]}{self.between.join(texts)}{self.section[1]}"

    def _section_start(self, text: str, start: int) -> int:
        marker = self.section[0].strip()
        before = start - len(self.section[0]) - 2
        place = text.rfind(marker, max(0, before), start) if marker else -1
        return start if place < 0 or text[place + len(marker) : start].strip() else place


_BLANKS = re.compile(r"\s{0,8}")


def closed(text: str, position: int, closing: str, *, optional_at_end: bool = True) -> int | None:
    """Return the position after `closing`, which whitespace may precede; None if it is not there.

    At the end of the text, it may be missing, because it may be a stop string.
    """
    blank = _BLANKS.match(text, position)
    start = position if blank is None else blank.end()
    if text.startswith(closing, start):
        return start + len(closing)
    return len(text) if optional_at_end and not text[start:].strip() else None
