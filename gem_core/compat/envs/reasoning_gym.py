"""`ReasoningGymEnv`."""

from __future__ import annotations

from gem_core.envs.rg.env import ReasoningGymEnv

__all__ = ["ReasoningGymEnv"]
