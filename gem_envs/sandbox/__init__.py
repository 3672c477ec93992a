"""Runs programs written by a model, at a named level of isolation.

    result = open_sandbox().run("print(1 + 1)")

`LEVELS` is the table of levels, and `self_check` tests them on this machine. Level ``process``
contains accidents (endless loops, output floods, memory leaks), not attackers; see its module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core._util.lazy import lazy_names
from gem_envs.sandbox._levels import LEVELS, open_sandbox, self_check
from gem_envs.sandbox._limits import ProgramLimits
from gem_envs.sandbox._result import RunResult

if TYPE_CHECKING:
    from gem_envs.sandbox._shell import File, open_shell

__all__ = [
    "File",
    "LEVELS",
    "ProgramLimits",
    "RunResult",
    "open_sandbox",
    "open_shell",
    "self_check",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "gem_envs.sandbox._shell": ["File", "open_shell"],
    },
)
