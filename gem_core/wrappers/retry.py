"""`Retry`: several attempts at the same item, with what went wrong in between."""

from __future__ import annotations

from typing import Any

from gem_core.core import Env, Info, Observation, ResetResult, StepResult
from gem_core.errors import ConfigError
from gem_core.observations import render_observation
from gem_core.wrapper import Wrapper


class Retry(Wrapper):
    """Turns a single-turn environment into one of several turns.

    After an attempt that failed the same item is asked again: the observation is what the environment
    said of the attempt (a failing test, say), the suffix how many attempts are left. The episode
    terminates with a success and is truncated with the last attempt.

    Rewards: each attempt pays by how much it beats the best one before, so that the return is the best
    score of all; times ``decay`` to the power of the attempts before it. A penalty (a format error below
    0) is paid each time.

    Args:
        env: A single-turn environment whose state can be saved.
        max_attempts: Attempts in all, at least 1.
        decay: From 0 to 1; 1 pays a late success like an early one.
    """

    state_fields = ("attempts", "best", "_start")

    def __init__(self, env: Env, *, max_attempts: int = 3, decay: float = 1.0) -> None:
        super().__init__(env)
        if isinstance(max_attempts, bool) or not isinstance(max_attempts, int) or max_attempts < 1:
            raise ConfigError(f"max_attempts={max_attempts!r}: expected a positive number of attempts")
        if isinstance(decay, bool) or not isinstance(decay, (int, float)) or not 0 <= decay <= 1:
            raise ConfigError(f"decay={decay!r}: expected a number from 0 to 1")
        self.max_attempts, self.decay = max_attempts, float(decay)
        self.attempts = 0
        self.best = 0.0
        self._start: dict[str, Any] | None = None

    def on_reset(self, observation: Observation, info: Info) -> ResetResult:
        self.attempts, self.best = 0, 0.0
        self._start = self.env.get_state()
        info["suffix"] = self._left(info.get("suffix", ""))
        return observation, info

    def on_step(
        self,
        action: str,
        observation: Observation,
        reward: float,
        terminated: bool,
        truncated: bool,
        info: Info,
    ) -> StepResult:
        self.attempts += 1
        paid = reward if reward < 0 else max(0.0, reward - self.best) * self.decay ** (self.attempts - 1)
        self.best = max(self.best, reward)
        if not (terminated or truncated):
            return observation, paid, False, False, info
        if info.get("success"):
            return observation, paid, True, False, info
        if self.attempts >= self.max_attempts or self._start is None:
            return observation, paid, False, True, info
        players = self._action_random  # a random player goes on with its stream, or would repeat itself
        self.env.set_state(self._start)
        self._action_random = players
        shown = render_observation(observation, info)
        kept: Info = {"invalid": info.get("invalid"), "suffix": self._left("")}
        if "parsed_action" in info:
            kept["parsed_action"] = info["parsed_action"]
        return shown, paid, False, False, kept

    def _left(self, suffix: str) -> str:
        left = f"Attempts left: {self.max_attempts - self.attempts}."
        return f"{suffix}\n{left}" if suffix else left
