"""Base classes for environments and wrappers that were written for GEM."""

from __future__ import annotations

import random
from typing import Any, TypeAlias

import numpy as np

from gem_core import Observation, Wrapper, _core
from gem_core._core import ResetOptions

ObsType: TypeAlias = Observation
ActType: TypeAlias = str
EnvWrapper = Wrapper


class Env(_core.Env):
    """Base class of environments written for GEM: ``reset(self, seed=None)`` and ``step(self, action)``.

    Such environments draw from the global generators. `reset` therefore seeds them, as GEM does; environments
    of gem_core draw from their own generator instead.
    """

    def reset(self, seed: int | None = None, *, options: ResetOptions | None = None) -> Any:
        """Seed the generators; a subclass calls this first and returns its own observation and info."""
        _core.check_reset_options(options, (), "an environment written for GEM")
        self.begin_episode(seed)
        if seed is not None:
            random.seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002  # the generator that GEM seeds
