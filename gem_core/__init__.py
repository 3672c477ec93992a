"""gem_core: text environments for LLM agents, and advantage estimators for training on them.

import gem_core

env = gem_core.make("game:GuessTheNumber-v0-easy")
observation, info = env.reset(seed=0)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gem_core.core import Env, Info, Observation
from gem_core.errors import GemError
from gem_core.registration import (
    list_envs,
    list_wrappers,
    make,
    print_envs,
    register,
    register_scheme,
    register_wrapper,
    spec,
    wrap,
)
from gem_core.spec import EnvSpec
from gem_core.wrapper import Wrapper

if TYPE_CHECKING:
    from gem_core.vector import AutoresetMode, make_vec

__version__ = "0.1.0"

__all__ = [
    "AutoresetMode",
    "Env",
    "EnvSpec",
    "GemError",
    "Info",
    "Observation",
    "Wrapper",
    "list_envs",
    "list_wrappers",
    "make",
    "make_vec",
    "print_envs",
    "register",
    "register_scheme",
    "register_wrapper",
    "spec",
    "wrap",
]


def __getattr__(name: str) -> Any:
    if name in ("AutoresetMode", "make_vec"):
        from gem_core import vector

        return getattr(vector, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
