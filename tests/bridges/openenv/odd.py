"""Environments that do what the response says, for tests of the server."""

import asyncio
import os
import time

import gem_core


class Odd(gem_core.Env):
    """Raises, exits, sleeps, or ends the episode on demand."""

    blocking = False

    def reset(self, seed=None, *, options=None):
        self.begin_episode(seed)
        if options:
            raise ValueError("no items")
        return f"seed {seed} \ud800", {"suffix": "Go.", "state_key": "start"}

    def step(self, action):
        self.require_reset()
        word, _, value = action.partition(" ")
        if word == "raise":
            raise ValueError(f"odd\n{value}")
        if word == "exit":
            os._exit(int(value))
        if word == "sleep":
            time.sleep(float(value))
        info = {"invalid": None, "metrics": {"n": 1.5}}
        if word in ("end", "cut"):
            self.end_episode()
            return "over", 1.0, word == "end", word == "cut", {**info, "success": word == "end"}
        return f"you said {action}", float("nan") if word == "nan" else 0.25, False, False, info


class OddWaits(Odd):
    blocking = True


class OddComputes(Odd):
    blocking = "cpu"


class OddAwaits(Odd):
    """Waits on the event loop."""

    blocking = True

    async def astep(self, action):
        word, _, value = action.partition(" ")
        if word == "sleep":
            await asyncio.sleep(float(value))
            return self.step("slept")
        return self.step(action)


class Several(Odd):
    multi_agent = True


def register():
    """Register the environments under ``test:NAME-v0``."""
    for kind in (Odd, OddWaits, OddComputes, OddAwaits, Several):
        gem_core.register(f"test:{kind.__name__}-v0", f"{__name__}:{kind.__name__}")
