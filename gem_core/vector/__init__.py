"""Vector environments: many environments behind one object.

    envs = gem_core.make_vec("game:GuessTheNumber-v0", 64)
    observations, infos = envs.reset(seed=0)
    observations, rewards, terminated, truncated, infos = envs.step(actions)

`gem_core.make_vec` chooses a backend: the calling thread, threads, worker processes, or Ray actors.
"""

from __future__ import annotations

from gem_core.vector._slot import AutoresetMode
from gem_core.vector._vector_env import VectorEnv, VectorStep

__all__ = ["AutoresetMode", "VectorEnv", "VectorStep"]
