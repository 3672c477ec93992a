"""Registers an environment that fails for every third seed, in its second step, for tests."""

from __future__ import annotations

from typing import Any

import gem_core
from gem_core.wrapper import Wrapper


class Failing(Wrapper):
    """Raises where it should not."""

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        self.steps = 0
        self.fails = seed is not None and seed % 3 == 0
        return self.env.reset(seed, options=options)

    def on_step(self, action: str, *rest: Any) -> Any:
        self.steps += 1
        if self.fails and self.steps == 2:
            raise RuntimeError("the server is gone")
        return rest


def make(**options: Any) -> Any:
    return Failing(gem_core.make("game:GuessTheNumber-v0-easy", **options))


gem_core.register("failing:Guess", make)
