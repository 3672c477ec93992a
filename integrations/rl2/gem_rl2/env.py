"""The file for ``rollout.env_path``, for both contracts of RL2.

RL2's rank 0 loads this file by its path. The newer source tree calls `generate`; rl-square 0.0.2 calls
`reset` and `step`.
"""

from __future__ import annotations

from typing import Any

from gem_core.errors import ConfigError
from gem_rl2 import session

if not hasattr(session, "current"):
    raise ConfigError("rollout.env_path needs GEM's launcher: start RL2 with python -m gem_rl2.train")


async def generate(config: Any, tokenizer: Any, router_url: str, sample: Any) -> None:
    """Play the episode of a sample; see `Session.generate`."""
    await session.current.generate(config, router_url, sample)


async def reset(extra_info: Any) -> Any:
    """Start an episode; see `Session.reset`."""
    return await session.current.reset(extra_info)


async def step(state_text: str, action_text: str, extra_info: Any) -> Any:
    """Pass a response to an episode; see `Session.step`."""
    return await session.current.step(state_text, action_text, extra_info)
