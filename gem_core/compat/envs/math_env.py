"""`MathEnv`."""

from __future__ import annotations

from gem_core.envs.datasets.math import MathEnv

__all__ = ["MathEnv"]
