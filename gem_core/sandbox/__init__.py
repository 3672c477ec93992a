"""Running programs that a model wrote. Each module is one level of isolation, weakest first.

`process` is here: limits of the kernel, a process group of its own, an empty environment, a temporary
folder. It stops accidents (a loop, a flood, a memory leak) and does not stop an attacker: the program
reads what its user may read and opens connections. Its module says so in full.
"""

from __future__ import annotations

from gem_core.sandbox.process import Limits, RunResult, run_python

__all__ = ["Limits", "RunResult", "run_python"]
