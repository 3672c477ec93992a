"""Runs programs written by a model, at a named level of isolation.

    result = open_sandbox().run("print(1 + 1)")

`levels` has the table of levels and `self_check`; `process`, `namespace`, and `container` implement one level
each; `selftest` attacks them; `guest` holds the code that runs inside. Level ``process``
contains accidents (endless loops, output floods, memory leaks), not attackers; see its module.
"""

from __future__ import annotations

from gem_envs.sandbox.levels import (
    LEVELS,
    IsolationLevel,
    LevelCheck,
    close_sandboxes,
    open_sandbox,
    self_check,
    strongest,
)
from gem_envs.sandbox.limits import ISOLATED, ProgramLimits
from gem_envs.sandbox.program import Sandbox
from gem_envs.sandbox.result import RunResult

__all__ = [
    "ISOLATED",
    "LEVELS",
    "IsolationLevel",
    "LevelCheck",
    "ProgramLimits",
    "RunResult",
    "Sandbox",
    "close_sandboxes",
    "open_sandbox",
    "self_check",
    "strongest",
]
