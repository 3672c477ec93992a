"""GEM's API under GEM's names, for programs that were written for GEM.

    import gem_bridges.compat as gem
    from gem_bridges.compat.wrappers.wrapper_factory import get_wrapper_fns

The modules have the same paths as GEM's and only forward to the rest of gem_core, which new programs should
use directly.
"""

from __future__ import annotations

from gem_bridges.compat.core import Env
from gem_bridges.compat.envs.registration import make, make_vec, print_envs, register

__all__ = ["Env", "make", "make_vec", "print_envs", "register"]
