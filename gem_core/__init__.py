"""gem_core: text environments for LLM agents, and advantage estimators for training on them.

import gem_core

env = gem_core.make("game:GuessTheNumber-v0-easy")
observation, info = env.reset(seed=0)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core._core import Env, Info, InfoKeys, Observation
from gem_core._registration import (
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
from gem_core._spec import EnvSpec
from gem_core._util.lazy import lazy_names
from gem_core._wrapper import Wrapper

if TYPE_CHECKING:
    from gem_core._observations import render_observation
    from gem_core._thoughts import without_thoughts
    from gem_core.vector._make import make_vec

__version__ = "0.1.0"

__all__ = [
    "Env",
    "EnvSpec",
    "Info",
    "InfoKeys",
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
    "render_observation",
    "spec",
    "without_thoughts",
    "wrap",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "gem_core._observations": ["render_observation"],
        "gem_core._thoughts": ["without_thoughts"],
        "gem_core.vector._make": ["make_vec"],
    },
)
