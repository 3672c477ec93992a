"""`CodeEnv`."""

from __future__ import annotations

from gem_bridges.compat.envs._arguments import Attributes, with_gems_arguments
from gem_envs.datasets import _code

__all__ = ["CodeEnv"]


class CodeEnv(Attributes, _code.CodeEnv):
    """`gem_envs.datasets.CodeEnv` with the arguments and attributes of GEM's class."""

    __init__ = with_gems_arguments(_code.CodeEnv.__init__)
