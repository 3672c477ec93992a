"""`QaEnv`."""

from __future__ import annotations

from gem_bridges.compat.envs._arguments import Attributes, with_gems_arguments
from gem_envs.datasets import _qa

__all__ = ["QaEnv"]


class QaEnv(Attributes, _qa.QaEnv):
    """`gem_envs.datasets.QaEnv` with the arguments and attributes of GEM's class."""

    __init__ = with_gems_arguments(_qa.QaEnv.__init__)
