"""`MathEnv`."""

from __future__ import annotations

from gem_bridges.compat.envs._arguments import Attributes, with_gems_arguments
from gem_envs.datasets import _math

__all__ = ["MathEnv"]


class MathEnv(Attributes, _math.MathEnv):
    """`gem_envs.datasets.MathEnv` with the arguments and attributes of GEM's class."""

    __init__ = with_gems_arguments(_math.MathEnv.__init__)
