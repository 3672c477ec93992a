"""GEM's presets of the wrapper `tools`, by its names; what they set can be changed by keyword arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gem_core.core import Env
from gem_core.wrappers.tools import Tools


def python_tool(env: Env, **changes: Any) -> Tools:
    """GEM's preset: Python, 0.05 for a call and 0.25 more for one that works, at most five."""
    return _preset(env, changes, tools="python(timeout=5)", tool_reward=0.05, tool_success_reward=0.25)


def python_tool_no_int_reward(env: Env, **changes: Any) -> Tools:
    """Python without intermediate rewards, at most five calls."""
    return _preset(env, changes, tools="python(timeout=5)")


def python_tool_no_int_reward_last_line_error(env: Env, **changes: Any) -> Tools:
    """The same, and of an error only its last line is shown."""
    return _preset(env, changes, tools="python(timeout=5, last_error_line=True)")


def search_tool(env: Env, **changes: Any) -> Tools:
    """GEM's preset: search on the server in ``SEARCH_URL``, 0.3 for a call, at most five."""
    return _preset(env, changes, tools="search", tool_reward=0.3)


def search_tool_no_int_reward(env: Env, **changes: Any) -> Tools:
    """Search on the server in ``SEARCH_URL`` without intermediate rewards, at most five calls."""
    return _preset(env, changes, tools="search")


def _preset(env: Env, changes: Mapping[str, Any], **defaults: Any) -> Tools:
    return Tools(env, **{"max_tool_uses": 5, **defaults, **changes})
