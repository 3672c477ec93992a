"""`CodeEnv`."""

from __future__ import annotations

from gem_bridges.compat.envs.arguments import Attributes, with_gems_arguments
from gem_envs.datasets import code

__all__ = ["CodeEnv"]


class CodeEnv(Attributes, code.CodeEnv):
    """`gem_envs.datasets.CodeEnv` with the arguments and attributes of GEM's class."""

    __init__ = with_gems_arguments(code.CodeEnv.__init__)
