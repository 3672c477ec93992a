"""`CodeEnv`."""

from __future__ import annotations

from gem_core.envs.datasets.code import CodeEnv

__all__ = ["CodeEnv"]
