"""Chat formats: how messages become the tokens of each model, and its tokens become text and tool calls.

    context = AppendContext(tokenizer)

It reads a chat template by probing: where a turn ends, how thoughts and calls are written, what it ignores.
`register` is the entry point of the group ``gem_core.envs``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core import register_wrapper
from gem_core._util.lazy import lazy_names

if TYPE_CHECKING:
    from gem_chat.append_context import AppendContext
    from gem_chat.calls.native import native_syntax
    from gem_chat.calls.syntaxes import get_syntax
    from gem_chat.messages import EnvPlayer, MessagesContext
    from gem_chat.player import EpisodePlayer
    from gem_chat.rebuild_context import RebuildContext

__all__ = [
    "AppendContext",
    "EnvPlayer",
    "EpisodePlayer",
    "MessagesContext",
    "RebuildContext",
    "get_syntax",
    "native_syntax",
    "register",
]


def register() -> None:
    """Register the wrappers that render conversations with a chat template."""
    register_wrapper("concat_chat", "gem_chat.wrappers:ConcatChat")
    register_wrapper("concat_chat_on_reset", "gem_chat.wrappers:ConcatChatOnReset")


__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "gem_chat.append_context": ["AppendContext"],
        "gem_chat.calls.native": ["native_syntax"],
        "gem_chat.calls.syntaxes": ["get_syntax"],
        "gem_chat.messages": ["EnvPlayer", "MessagesContext"],
        "gem_chat.player": ["EpisodePlayer"],
        "gem_chat.rebuild_context": ["RebuildContext"],
    },
)
