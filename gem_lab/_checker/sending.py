"""`Sender`: sends texts to one item of an environment and measures how long its steps take."""

from __future__ import annotations

import time
from typing import Any

from gem_core import Env
from gem_lab._checker.host import timed
from gem_lab._checker.subject import broken, clip, reset, step, step_result

SHOWN_CLASS = "<class "
"""Text that shows a class, as str.format writes it."""
ADVICE = (
    "parse the text with literal or arithmetic parsers, and never pass it to eval, exec, compile, pickle, "
    "str.format, a shell, a database, or sympy in this process or in a reused worker; run programs in "
    "gem_envs.sandbox"
)


class Sender:
    """One item of an environment, to which texts are sent repeatedly.

    Args:
        env: The environment.
        seed: Seed of the item.
        patience: Maximum number of seconds of CPU time for a step.
    """

    def __init__(self, env: Env, seed: int, patience: float) -> None:
        self.env = env
        self.seed = seed
        self.patience = patience
        reset(env, seed)
        self.repeatable = env.spec is None or (env.spec.stateful and env.spec.deterministic)
        self.state = env.get_state() if self.repeatable else None
        self.ended = False

    def start(self) -> None:
        """Return to the start of the item, from a saved state if possible, because a reset may be slow."""
        if self.state is None:
            reset(self.env, self.seed)
        else:
            self.env.set_state(self.state)
        self.ended = False

    def send(self, payload: str, form: str, text: str) -> Any:
        """Send the text and return the observation.

        Raises:
            RuleBroken: The text was formatted, or the step took too long.
        """
        if self.ended:
            self.start()
        start = time.perf_counter()
        result = step_result(self.env, text)
        if time.perf_counter() - start > self.patience:
            self.start()
            seconds = timed(lambda: step(self.env, text))
            if seconds > self.patience:
                broken(
                    f"the payload {payload!r} ({form}), {clip(text, 60)}, took {seconds:.1f} s; "
                    f"the limit is {self.patience:g} s",
                    "limit the time for grading to less than that",
                )
            self.start()
        else:
            _, _, terminated, truncated, _ = result
            self.ended = terminated or truncated
        if SHOWN_CLASS in repr(result) and SHOWN_CLASS not in text:
            broken(f"the payload {payload!r} ({form}) was formatted: {clip(result[0])}", ADVICE)
        return result[0]
