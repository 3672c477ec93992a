"""Chat formats: how messages become the tokens of each model, and its tokens become text and tool calls.

    context = AppendContext(tokenizer)

It reads a chat template by probing: where a turn ends, how thoughts and calls are written, what it ignores.
`register` is the entry point of the group ``gem_core.envs``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gem_core.registration import register_wrapper

if TYPE_CHECKING:
    from gem_chat.append_context import AppendContext
    from gem_chat.messages import EnvPlayer, MessagesContext
    from gem_chat.rebuild_context import RebuildContext

__all__ = ["AppendContext", "EnvPlayer", "MessagesContext", "RebuildContext", "register"]

_LAZY = {
    "AppendContext": "gem_chat.append_context",
    "EnvPlayer": "gem_chat.messages",
    "MessagesContext": "gem_chat.messages",
    "RebuildContext": "gem_chat.rebuild_context",
}


def register() -> None:
    """Register the wrappers that render conversations with a chat template."""
    register_wrapper("concat_chat", "gem_chat.wrappers:ConcatChat")
    register_wrapper("concat_chat_on_reset", "gem_chat.wrappers:ConcatChatOnReset")


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
