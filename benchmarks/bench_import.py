"""Import time: `import gem_core` against `import numpy`, each in fresh interpreters."""

from __future__ import annotations

import statistics
import subprocess
import sys

import common

HEAVY = ("torch", "transformers", "ray", "rich", "matplotlib", "tensorboard")


def milliseconds(module: str) -> float:
    """Return the CPU time of one import in a fresh interpreter, without the start of the interpreter."""
    code = f"import time; start = time.process_time(); import {module}; print(time.process_time() - start)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return 1000 * float(done.stdout)


def heavy_modules() -> list[str]:
    """Return the optional packages that `import gem_core` imports; the list must be empty."""
    code = f"import sys, gem_core; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def run(quick: bool) -> list[common.Result]:
    if loaded := heavy_modules():
        raise SystemExit(f"import gem_core loads {', '.join(loaded)}")
    times: dict[str, list[float]] = {"gem_core": [], "numpy": [], "gem": []}
    for _ in range(2 if quick else 10):
        for module, measured in times.items():
            measured.append(milliseconds(module))
    ours, numpy, gem = (statistics.median(measured) for measured in times.values())
    return [
        common.Result(
            "import: gem_core", ours, numpy, ours / numpy, unit="ms", at_most=1.6, note="peer: numpy"
        ),
        common.Result("import: gem_core", ours, gem, ours / gem, unit="ms", note="peer: gem-llm"),
    ]


if __name__ == "__main__":
    common.main(run)
