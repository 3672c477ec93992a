"""`ReasoningGymEnv`."""

from __future__ import annotations

from gem_envs._rg.env import ReasoningGymEnv

__all__ = ["ReasoningGymEnv"]
