"""Environments that misbehave, for tests. An entry point of the group ``gem_core.envs``."""

from __future__ import annotations

import collections
import hashlib
import itertools
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from gem_core import Env
from gem_core import register as register_env
from gem_envs._games.guess_the_number import GuessTheNumber


class Endless(Env):
    """Rewards every step and never ends.

    Args:
        asked: Number of sentences of the first observation.
        told: Number of sentences of each other one; with many, an episode has no room for a second turn.
    """

    def __init__(self, asked: int = 1, told: int = 1) -> None:
        self.question, self.answer = " ".join(["Say something."] * asked), " ".join(["Go on."] * told)

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        self.begin_episode(seed)
        self.steps = 0
        return self.question, {}

    def step(self, action: str) -> Any:
        self.steps += 1
        return self.answer, float(self.steps % 3), False, False, {}

    def sample_random_action(self) -> str:
        return "Something."


class Raises(Endless):
    """Raises in its second step."""

    def step(self, action: str) -> Any:
        if self.steps == 1:
            raise RuntimeError("the environment broke")
        return super().step(action)


class Hangs(Endless):
    """Never returns from its second step."""

    blocking = True

    def step(self, action: str) -> Any:
        if self.steps == 1:
            threading.Event().wait()
        return super().step(action)


class Slow(GuessTheNumber):
    """Guess the number, with steps that take 0.3 s."""

    blocking = True

    def step(self, action: str) -> Any:
        time.sleep(0.3)
        return super().step(action)


class Chaos(GuessTheNumber):
    """Guess the number, with a constructor and resets, steps, and closes that may raise or hang.

    Each call fails with probability `p`, and then raises or hangs with equal probability. A hash decides: of
    the number of the instance within the process for the constructor and `close`; of the seed, the number of
    resets with that seed within the process, and the turn for the others. A run with the same tasks in each
    process therefore fails equally often, and a retry with the same seed can succeed.

    If the environment variable ``GEM_CHAOS`` names a folder, each failure is a line of JSON in its
    ``chaos.jsonl``; `chaos_counts` reads it.

    Args:
        p: Probability of each failure.
        hang: Duration of a hanging call, in seconds; use a much lower `step_timeout`.
        calm: Number of instances per process that are built and closed without failure, so that the
            environment can be checked before a run starts.
        only: Names of the calls that fail, separated by spaces.
        game: Keyword arguments of `GuessTheNumber`.
    """

    blocking = True

    def __init__(
        self,
        p: float = 0.1,
        hang: float = 3.0,
        calm: int = 4,
        only: str = "constructor reset step close",
        **game: Any,
    ) -> None:
        self.p, self.hang, self.only = p, hang, only.split()
        self.instance = next(_instances)
        self.calm = self.instance < calm
        self.now: tuple[int | None, int] = (None, 0)
        self.fail("constructor", self.instance)
        super().__init__(**game)

    def fail(self, call: str, *now: Any) -> None:
        """Raise, hang, or do nothing."""
        if call not in self.only or (self.calm and call in ("constructor", "close")):
            return
        digest = hashlib.sha256(repr((call, *now)).encode()).digest()
        if int.from_bytes(digest[:4], "big") >= self.p * 2**32:
            return
        kind = "raise" if digest[4] % 2 else "hang"
        if "GEM_CHAOS" in os.environ:
            line = json.dumps({"call": call, "kind": kind, "now": now, "process": os.getpid()}) + "\n"
            with open(Path(os.environ["GEM_CHAOS"], "chaos.jsonl"), "a", encoding="utf-8") as file:
                file.write(line)
        if kind == "raise":
            raise RuntimeError(f"chaos in the {call}")
        time.sleep(self.hang)

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        with _counting:
            _resets[seed] += 1
            self.now = (seed, _resets[seed])
        self.fail("reset", *self.now)
        return super().reset(seed, options=options)

    def step(self, action: str) -> Any:
        self.fail("step", *self.now, self.turn)
        return super().step(action)

    def close(self) -> None:
        self.fail("close", self.instance)
        super().close()


_instances = itertools.count()
_resets: collections.Counter[int | None] = collections.Counter()
_counting = threading.Lock()


def chaos_counts(folder: Path) -> collections.Counter[tuple[str, str]]:
    """Return the number of failures by call and kind, such as ``("reset", "hang")``."""
    lines = (folder / "chaos.jsonl").read_text(encoding="utf-8").splitlines()
    return collections.Counter((line["call"], line["kind"]) for line in map(json.loads, lines))


def register() -> None:
    """Register the environments."""
    for kind in (Endless, Raises, Hangs):
        register_env(f"test:{kind.__name__}", kind)
    register_env("test:Chaos-v0", Chaos)
    register_env("test:Slow-v0", Slow)
