"""Syntaxes of native calls: how the models of each family write them, by name.

    call = get_syntax("glm").parse(response, tools)[0]

A chat template is made for one of these syntaxes; `gem_chat.native_syntax` tells which. The text
of a response includes its special tokens, because many syntaxes consist of them. A parser accepts any text.
What looks like a call but cannot be read becomes a `ToolCall` with an `error`.
"""

from __future__ import annotations

from gem_chat._calls.syntaxes.base import Syntax
from gem_chat._calls.syntaxes.json_calls import JSON_SYNTAXES
from gem_chat._calls.syntaxes.own import OWN_SYNTAXES
from gem_chat._calls.syntaxes.tagged import TAGGED_SYNTAXES
from gem_core._util.registry import Registry

__all__ = ["ALL", "SYNTAXES", "Syntax", "get_syntax"]

ALL: tuple[Syntax, ...] = (*JSON_SYNTAXES, *TAGGED_SYNTAXES, *OWN_SYNTAXES)
"""The syntaxes in the order in which they are tried."""

SYNTAXES: Registry[Syntax] = Registry("syntax of calls")
for _syntax in ALL:
    SYNTAXES.register(_syntax.name, _syntax)


def get_syntax(name: str) -> Syntax:
    """Return the syntax of that name.

    Raises:
        UnknownName: There is none; the message holds the closest names.
    """
    return SYNTAXES.get(name)
