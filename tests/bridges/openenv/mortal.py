"""A server that is killed once while it plays: ``python -m tests.bridges.openenv.mortal PORT MARK``."""

import os
import signal
import sys
from pathlib import Path

import gem_core
from gem_envs._games.guess_the_number import GuessTheNumber
from gem_lab import main

DEADLY_STEP = 30


class Mortal(GuessTheNumber):
    """The easy game of the trainer's tests, whose process is killed at one step unless `mark` exists."""

    steps = 0

    def __init__(self, mark):
        super().__init__(1, 3, 2)
        self.mark = Path(mark)

    def step(self, action):
        Mortal.steps += 1
        if Mortal.steps == DEADLY_STEP and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


gem_core.register("test:Mortal-v0", "tests.bridges.openenv.mortal:Mortal")

if __name__ == "__main__":
    sys.exit(main(["serve", "openenv", f"test:Mortal-v0(mark={sys.argv[2]!r})", "--port", sys.argv[1]]))
