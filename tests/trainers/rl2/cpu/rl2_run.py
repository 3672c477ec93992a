"""``torchrun rl2_run.py MODULE WORDS...``: runs a module of RL2 or gem_rl2 as the main program, on a CPU."""

from __future__ import annotations

import importlib
import os
import runpy
import sys

if __name__ == "__main__":
    import rl2_cpu

    rl2_cpu.install()
    if home := os.environ.get("RL2_HOME"):
        sys.path.insert(0, home)
    for name in os.environ["GEM_RL2_TESTS"].split(","):
        importlib.import_module(name).install()
    module = sys.argv[1]
    sys.argv = [module, *sys.argv[2:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
