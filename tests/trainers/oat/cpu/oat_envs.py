"""Environments for the tests, loaded by ``--modules oat_envs``."""

from __future__ import annotations

from typing import Any

import gem_core
from gem_core import Env


class Equal(Env):
    """Ends after one step with the same reward for any action."""

    def reset(self, seed: int | None = None, *, options: Any = None) -> tuple[str, dict[str, Any]]:
        return "Say anything.", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "Thanks.", -0.1, True, False, {}


class Broken(Equal):
    """Fails at every step."""

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        raise ValueError("the board fell off the table")


class Endless(Equal):
    """Never ends by itself."""

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "Go on.", 0.0, False, False, {}


for kind in (Equal, Broken, Endless):
    gem_core.register(f"test:{kind.__name__}", kind)
