"""Chat formats: how messages become the tokens of each model, and its tokens become text and tool calls.

    context = AppendContext(tokenizer)

It reads a chat template by probing: where a turn ends, how thoughts and calls are written, what it ignores.
`register` is the entry point of the group ``gem_core.envs``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gem_core.registration import register_wrapper

if TYPE_CHECKING:
    from gem_chat.context import AppendContext, RebuildContext

__all__ = ["AppendContext", "RebuildContext", "register"]


def register() -> None:
    """Register the wrappers that render conversations with a chat template."""
    register_wrapper("concat_chat", "gem_chat.wrappers:ConcatChat")
    register_wrapper("concat_chat_on_reset", "gem_chat.wrappers:ConcatChatOnReset")


def __getattr__(name: str) -> Any:
    if name in ("AppendContext", "RebuildContext"):
        from gem_chat import context

        return getattr(context, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
