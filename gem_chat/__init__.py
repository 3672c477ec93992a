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
    from gem_chat._append_context import AppendContext
    from gem_chat._calls.native import native_syntax
    from gem_chat._calls.syntaxes import get_syntax
    from gem_chat._messages import EnvPlayer, MessagesContext
    from gem_chat._player import EpisodePlayer
    from gem_chat._rebuild_context import RebuildContext

__all__ = [
    "AppendContext",
    "EnvPlayer",
    "EpisodePlayer",
    "MessagesContext",
    "RebuildContext",
    "get_syntax",
    "native_syntax",
]


def register() -> None:
    """Register the wrappers that render conversations with a chat template."""
    register_wrapper("concat_chat", "gem_chat._wrappers:ConcatChat")
    register_wrapper("concat_chat_on_reset", "gem_chat._wrappers:ConcatChatOnReset")


__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "gem_chat._append_context": ["AppendContext"],
        "gem_chat._calls.native": ["native_syntax"],
        "gem_chat._calls.syntaxes": ["get_syntax"],
        "gem_chat._messages": ["EnvPlayer", "MessagesContext"],
        "gem_chat._player": ["EpisodePlayer"],
        "gem_chat._rebuild_context": ["RebuildContext"],
    },
)
