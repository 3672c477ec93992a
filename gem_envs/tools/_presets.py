"""GEM's presets of the wrapper `tools`, under GEM's names and in GEM's format; keyword arguments override."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gem_core import Env
from gem_envs.tools._wrapper import Tools


def python_tool(env: Env, **changes: Any) -> Tools:
    """Wrap `env` with Python: at most five calls, 0.05 per call and 0.25 more if it works."""
    return _preset(env, changes, tools="python(timeout=5)", tool_reward=0.05, tool_success_reward=0.25)


def python_tool_no_int_reward(env: Env, **changes: Any) -> Tools:
    """Wrap `env` with Python: at most five calls, without intermediate rewards."""
    return _preset(env, changes, tools="python(timeout=5)")


def python_tool_no_int_reward_last_line_error(env: Env, **changes: Any) -> Tools:
    """Like `python_tool_no_int_reward`, but show only the last line of an error."""
    return _preset(env, changes, tools="python(timeout=5, last_error_line=True)")


def search_tool(env: Env, **changes: Any) -> Tools:
    """Wrap `env` with search on the server in ``SEARCH_URL``: at most five calls, 0.3 per call."""
    return _preset(env, changes, tools="search", tool_reward=0.3)


def search_tool_no_int_reward(env: Env, **changes: Any) -> Tools:
    """Wrap `env` with search on the server in ``SEARCH_URL``: at most five calls, no intermediate rewards."""
    return _preset(env, changes, tools="search")


def _preset(env: Env, changes: Mapping[str, Any], **defaults: Any) -> Tools:
    return Tools(env, **{"max_tool_uses": 5, "format": "gem", **defaults, **changes})
