"""Environments that misbehave, for tests. An entry point of the group ``gem_core.envs``."""

from __future__ import annotations

import threading
from typing import Any

from gem_core import register as register_env
from gem_core.core import Env


class Endless(Env):
    """Pays for every step and never ends."""

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        self.begin_episode(seed)
        self.steps = 0
        return "Say something.", {}

    def step(self, action: str) -> Any:
        self.steps += 1
        return "Go on.", float(self.steps % 3), False, False, {}

    def sample_random_action(self) -> str:
        return "Something."


class Raises(Endless):
    """Breaks in its second step."""

    def step(self, action: str) -> Any:
        if self.steps == 1:
            raise RuntimeError("the environment broke")
        return super().step(action)


class Hangs(Endless):
    """Never returns from its second step."""

    blocking = True

    def step(self, action: str) -> Any:
        if self.steps == 1:
            threading.Event().wait()
        return super().step(action)


def register() -> None:
    """Make them known by id."""
    for kind in (Endless, Raises, Hangs):
        register_env(f"test:{kind.__name__}", kind)
