"""`Retry`: several attempts at the same item, with feedback in between."""

from __future__ import annotations

from typing import Any

from gem_core._core import Env, Info, Observation, ResetResult, StepResult
from gem_core._observations import render_observation
from gem_core._util.checks import check_int, check_number
from gem_core._wrapper import Wrapper
from gem_core.errors import ConfigError


class Retry(Wrapper):
    """Turns a single-turn environment into a multi-turn one.

    After a failed attempt, the same item is asked again: the observation is the environment's feedback on the
    attempt (such as how a test failed), and the suffix says how many attempts are left. A success terminates
    the episode; the last failed attempt truncates it.

    An attempt is rewarded for its improvement over the best earlier one, so the return is the best score. The
    reward is multiplied by ``decay`` once for each earlier attempt. A penalty (a negative reward for a format
    error) applies every time.

    Args:
        env: A single-turn environment whose state can be saved.
        max_attempts: Maximum number of attempts, at least 1.
        decay: Number from 0 to 1; with 1, a late success earns as much as an early one.

    Raises:
        ConfigError: The environment has at most `max_attempts` possible answers, so trying all succeeds.
    """

    state_fields = ("attempts", "best", "_start")

    def __init__(self, env: Env, *, max_attempts: int = 3, decay: float = 1.0) -> None:
        super().__init__(env)
        self.max_attempts = check_int("max_attempts", max_attempts, 1)
        answers = getattr(env.unwrapped, "possible_answers", None)
        if answers is not None and answers <= max_attempts:
            raise ConfigError(
                f"max_attempts={max_attempts}: expected fewer than the {answers} answers that "
                f"{env.unwrapped!r} can have, because trying all of them succeeds"
            )
        self.decay = float(check_number("decay", decay, 0, 1))
        self.attempts = 0
        self.best = 0.0
        self._start: dict[str, Any] | None = None

    def on_reset(self, observation: Observation, info: Info) -> ResetResult:
        self.attempts, self.best = 0, 0.0
        self._start = self.env.get_state()
        info["suffix"] = self._left(info.get("suffix", ""))
        return observation, info

    def on_step(self, action: str, result: StepResult) -> StepResult:
        observation, reward, terminated, truncated, info = result
        self.attempts += 1
        payment = reward if reward < 0 else max(0.0, reward - self.best) * self.decay ** (self.attempts - 1)
        self.best = max(self.best, reward)
        if not (terminated or truncated):
            return observation, payment, False, False, info
        if info.get("success"):
            return observation, payment, True, False, info
        if self.attempts >= self.max_attempts or self._start is None:
            return observation, payment, False, True, info
        players = self._action_random  # a random player must not repeat itself
        self.env.set_state(self._start)
        self._action_random = players
        feedback = render_observation(observation, info)
        kept: Info = {"invalid": info.get("invalid"), "suffix": self._left("")}
        if "parsed_action" in info:
            kept["parsed_action"] = info["parsed_action"]
        return feedback, payment, False, False, kept

    def _left(self, suffix: str) -> str:
        left = f"Attempts left: {self.max_attempts - self.attempts}."
        return f"{suffix}\n{left}" if suffix else left
