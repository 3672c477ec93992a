"""`VectorEnv` and `AutoresetMode`."""

from __future__ import annotations

from gem_core.vector import AutoresetMode, VectorEnv

__all__ = ["AutoresetMode", "VectorEnv"]
