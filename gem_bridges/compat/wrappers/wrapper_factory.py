"""`WRAPPER_FACTORY` and `get_wrapper_fns`: GEM's wrappers by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gem_bridges.compat.wrappers.observation_wrapper import ObservationWrapper
from gem_core import Env
from gem_core.errors import ConfigError
from gem_core.wrappers import EpisodeStatistics
from gem_envs.tools._presets import (
    python_tool,
    python_tool_no_int_reward,
    python_tool_no_int_reward_last_line_error,
    search_tool,
    search_tool_no_int_reward,
)

WRAPPER_FACTORY: dict[str, Callable[..., Env]] = {
    "python_tool": python_tool,
    "python_tool_no_int_reward": python_tool_no_int_reward,
    "python_tool_no_int_reward_last_line_error": python_tool_no_int_reward_last_line_error,
    "search_tool": search_tool,
    "search_tool_no_int_reward": search_tool_no_int_reward,
    "concat": partial(ObservationWrapper, include_action=False, include_chat_template=False),
    "concat_chat": partial(ObservationWrapper),
    "concat_with_action": partial(ObservationWrapper, include_chat_template=False),
    "concat_chat_on_reset": partial(
        ObservationWrapper, include_chat_template=False, apply_chat_template_on_reset=True
    ),
    "episode_tracking": EpisodeStatistics,
}

TOKENIZER_REQUIRED = ["concat_chat", "concat_chat_on_reset"]


def get_wrapper_fns(wrappers: str, tokenizer: Any = None) -> list[Callable[..., Env]]:
    """Return the wrappers in a list of names such as ``"concat,episode_tracking"``.

    Args:
        wrappers: Names separated by commas; empty for none.
        tokenizer: Tokenizer for the wrappers that need one.

    Raises:
        ConfigError: A name is unknown.
    """
    functions = []
    for name in filter(None, (part.strip() for part in wrappers.split(","))):
        if name not in WRAPPER_FACTORY:
            raise ConfigError(f"unknown wrapper {name!r}; the wrappers are: {', '.join(WRAPPER_FACTORY)}")
        function = WRAPPER_FACTORY[name]
        if name in TOKENIZER_REQUIRED and tokenizer is not None:
            function = partial(function, tokenizer=tokenizer)
        functions.append(function)
    return functions
