"""The file for ``rollout.env_path``, for both contracts of RL2.

RL2's rank 0 loads this file by its path. The newer source tree calls `generate`; rl-square 0.0.2 calls
`reset` and `step`.
"""

from __future__ import annotations

from typing import Any

from gem_rl2.session import Session

session = Session.current()
reset, step = session.reset, session.step


async def generate(config: Any, tokenizer: Any, router_url: str, sample: Any) -> None:
    """Play the episode of a sample; see `Session.generate`."""
    await session.generate(config, router_url, sample)
