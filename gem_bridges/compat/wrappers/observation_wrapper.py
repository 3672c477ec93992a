"""`ObservationWrapper`: one of the observation wrappers of gem_core, chosen by GEM's flags."""

from __future__ import annotations

from typing import Any

from gem_chat._wrappers import ConcatChat, ConcatChatOnReset
from gem_core import Env, Wrapper
from gem_core.errors import ConfigError
from gem_core.wrappers import Concat, ConcatWithAction


def ObservationWrapper(  # a class in GEM
    env: Env,
    include_action: bool = True,
    include_chat_template: bool = True,
    apply_chat_template_on_reset: bool = False,
    max_history_length: int | None = None,
    tokenizer: Any = None,
) -> Wrapper:
    """Wrap an environment so that observations show the history.

    Args:
        env: The environment.
        include_action: Whether the history includes the actions.
        include_chat_template: Whether to render the history with the chat template.
        apply_chat_template_on_reset: Whether to render only the first observation with it.
        max_history_length: Number of exchanges to show after the first observation, which is always shown
            (GEM drops even that). None means all.
        tokenizer: Tokenizer with a chat template.

    Raises:
        ConfigError: The flags contradict each other, or there is no tokenizer.
    """
    if include_chat_template and apply_chat_template_on_reset:
        raise ConfigError(
            "include_chat_template and apply_chat_template_on_reset cannot be combined: set one of them"
        )
    if include_chat_template or apply_chat_template_on_reset:
        if tokenizer is None:
            raise ConfigError("a chat template needs a tokenizer: pass tokenizer=")
        kind = ConcatChat if include_chat_template else ConcatChatOnReset
        return kind(env, tokenizer=tokenizer, max_history=max_history_length)
    plain = ConcatWithAction if include_action else Concat
    return plain(env, max_history=max_history_length)
