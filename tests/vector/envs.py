"""Environments that misbehave on command; worker processes import them from here."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import numpy as np

from gem_core import Env, EnvSpec, Wrapper, make_vec
from gem_core.vector import VectorEnv

OBEDIENT = EnvSpec("test:Obedient-v0", "tests.vector.envs:Obedient")
RELEASE = threading.Event()
"""Ends every hang in this process; the test that makes one sets it."""

RETURNS: dict[str, Any] = {
    "nan": ("x", float("nan"), False, False, {}),
    "inf": ("x", float("inf"), False, False, {}),
    "text reward": ("x", "1", False, False, {}),
    "both flags": ("x", 0.0, True, True, {}),
    "text flag": ("x", 0.0, "no", False, {}),
    "no observation": (None, 0.0, False, False, {}),
    "no info": ("x", 0.0, False, False, None),
    "four values": ("x", 0.0, False, {}),
    "nothing": None,
    "numpy": ("x", np.float32(0.5), np.bool_(False), np.bool_(False), {}),
    "integer": ("x", 1, False, False, {}),
    "parts": ([{"type": "text", "text": "x"}], 0.5, False, False, {}),
    "end": ("last", 1.0, True, False, {"success": True}),
}


class Obedient(Env):
    """Obeys the action; any other word is a plain step with reward 0.5."""

    def __init__(self, fail_seed: int | None = None, hang_reset: bool = False, blocking: Any = False) -> None:
        self.fail_seed = fail_seed
        self.hang_reset = hang_reset
        self.blocking = blocking
        self.turn = 0

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        self.begin_episode(seed)
        if self.hang_reset:
            RELEASE.wait()
        if seed is not None and seed == self.fail_seed:
            raise ValueError(f"cannot start\nwith seed {seed}")
        self.turn = 0
        return f"draw {self.random.randrange(10**6)}", {}

    def step(self, action: str) -> Any:
        self.require_reset()
        self.turn += 1
        if action in RETURNS:
            return RETURNS[action]
        if action == "raise":
            raise RuntimeError("told to\nraise")
        if action == "exit":
            sys.exit("told to exit")
        if action == "die":
            os._exit(7)
        if action == "hang":
            RELEASE.wait()
        if action == "unsendable":
            return "x", 0.5, False, False, {"lock": threading.Lock()}
        return f"turn {self.turn}", 0.5, False, False, {"pid": os.getpid()}


class Loud(Wrapper):
    """Wrapper that a test registers under a name unknown to worker processes."""

    def on_reset(self, observation: Any, info: Any) -> Any:
        return observation.upper(), info


class Unbuildable(Env):
    """Raises an exception that cannot be pickled in its constructor."""

    def __init__(self) -> None:
        class Local(Exception):
            pass

        raise Local("no such board")


def obedient(num_envs: int = 3, **kwargs: Any) -> VectorEnv:
    return make_vec(OBEDIENT, num_envs, **kwargs)
