"""`QaEnv`."""

from __future__ import annotations

from gem_core.envs.datasets.qa import QaEnv

__all__ = ["QaEnv"]
