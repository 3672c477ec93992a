"""Running programs that a model wrote, at a level of isolation that has a name.

    result = open_sandbox().run("print(1 + 1)")

`levels` has the table of levels and `self_check`; `process`, `namespace` and `container` are one level each;
`escape` attacks them. `run_python` is level ``process`` in one function. It stops accidents (a loop, a flood,
a memory leak) and does not stop an attacker; its module says so in full.
"""

from __future__ import annotations

from gem_core.sandbox.levels import (
    LEVELS,
    Check,
    Sandbox,
    close_sandboxes,
    open_sandbox,
    self_check,
    strongest,
)
from gem_core.sandbox.process import ISOLATED, Limits, RunResult, run_python

__all__ = [
    "ISOLATED",
    "LEVELS",
    "Check",
    "Limits",
    "RunResult",
    "Sandbox",
    "close_sandboxes",
    "open_sandbox",
    "run_python",
    "self_check",
    "strongest",
]
