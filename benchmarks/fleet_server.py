"""An environment whose steps wait like calls of a sandbox, and its server on a local Ray cluster.

    python benchmarks/fleet_server.py PORT ACTORS FOLDER [PROFILE]

FOLDER is Ray's; with PROFILE, the server writes a profile of its event loop there when it ends.
"""

from __future__ import annotations

import asyncio
import cProfile
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import gem_core
from gem_core._core import ResetResult, StepResult

MEDIAN, SIGMA, LONGEST = 2.0, 1.25, 300.0
"""The seconds of a call are lognormal, with this median and this standard deviation of the logarithm. The
mean is 4.4 seconds, the 99th percentile 37."""
TURNS = 8


def durations(seed: int) -> Iterator[float]:
    """Yield the seconds of the reset and of each step of the episode with this seed."""
    random = Random(seed)
    while True:
        yield min(LONGEST, random.lognormvariate(math.log(MEDIAN), SIGMA))


class Waiting(gem_core.Env):
    """Waits in every call, and ends after `TURNS` turns."""

    blocking = True

    async def areset(self, seed: int | None = None, *, options: Any = None) -> ResetResult:
        self._durations = durations(seed or 0)
        await asyncio.sleep(next(self._durations))
        return self._reset(seed)

    async def astep(self, action: str) -> StepResult:
        await asyncio.sleep(next(self._durations))
        return self._step()

    def reset(self, seed: int | None = None, *, options: Any = None) -> ResetResult:
        self._durations = durations(seed or 0)
        time.sleep(next(self._durations))
        return self._reset(seed)

    def step(self, action: str) -> StepResult:
        time.sleep(next(self._durations))
        return self._step()

    def _reset(self, seed: int | None) -> ResetResult:
        self.begin_episode(seed)
        self._turns = 0
        return "$ ", {}

    def _step(self) -> StepResult:
        self._turns += 1
        done = self._turns == TURNS
        if done:
            self.end_episode()
        return "done\n$ ", float(done), done, False, {"success": done, "invalid": None}


def main() -> None:
    """Serve."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

    from gem_lab import main as gem_core_main
    from tests.local_ray import start_local_ray

    port, actors, folder, profile = [*sys.argv[1:], ""][:4]
    start_local_ray(folder)
    gem_core.register("fleet:Waiting-v0", "fleet_server:Waiting")
    command = ["serve", "openenv", "fleet:Waiting-v0", "--ray", "--workers", actors, "--port", port]
    if profile:
        cProfile.runctx("gem_core_main(command)", globals(), locals(), profile)
    else:
        gem_core_main(command)


if __name__ == "__main__":
    main()
