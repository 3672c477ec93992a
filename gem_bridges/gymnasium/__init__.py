"""Gymnasium in both directions: ``gymnasium:ID`` as an environment, and our ids as `gymnasium.Env`."""

from __future__ import annotations

from gem_bridges._extras import needs_extra

with needs_extra("gem_bridges.gymnasium", "gymnasium"):
    from gem_bridges.gymnasium._view import GemEnv, register_envs

__all__ = ["GemEnv", "register_envs"]
