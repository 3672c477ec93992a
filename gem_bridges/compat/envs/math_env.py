"""`MathEnv`."""

from __future__ import annotations

from gem_bridges.compat.envs.arguments import Attributes, with_gems_arguments
from gem_envs.datasets import math

__all__ = ["MathEnv"]


class MathEnv(Attributes, math.MathEnv):
    """`gem_envs.datasets.MathEnv` with the arguments and attributes of GEM's class."""

    __init__ = with_gems_arguments(math.MathEnv.__init__)
