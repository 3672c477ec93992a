"""Wrappers for whole episodes: `EpisodeStatistics` and `TimeLimit`."""

from __future__ import annotations

from gem_core._core import Env, Info, Observation, ResetResult, StepResult
from gem_core._util.checks import check_int
from gem_core._wrapper import Wrapper


class EpisodeStatistics(Wrapper):
    """Counts steps, adds up rewards, and reports both in the info dict.

    Every info has ``step_counter`` and ``cumulative_rewards`` of the running episode; the info of `reset`
    also has ``prev_ep_step_counter`` and ``prev_ep_cumulative_rewards``, both None before the second
    episode. The last step adds ``return``, ``turns``, ``invalid_actions``, and ``tool_calls`` to
    ``info["metrics"]``.
    """

    state_fields = (
        "step_counter",
        "cumulative_rewards",
        "invalid_actions",
        "tool_calls",
        "prev_ep_step_counter",
        "prev_ep_cumulative_rewards",
        "_started",
    )

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.step_counter = 0
        self.cumulative_rewards = 0.0
        self.invalid_actions = 0
        self.tool_calls = 0
        self.prev_ep_step_counter: int | None = None
        self.prev_ep_cumulative_rewards: float | None = None
        self._started = False

    def on_reset(self, observation: Observation, info: Info) -> ResetResult:
        before = (self.step_counter, self.cumulative_rewards) if self._started else (None, None)
        self._started = True
        self.step_counter = self.invalid_actions = self.tool_calls = 0
        self.cumulative_rewards = 0.0
        info["step_counter"] = 0
        info["cumulative_rewards"] = 0.0
        info["prev_ep_step_counter"], info["prev_ep_cumulative_rewards"] = before
        self.prev_ep_step_counter, self.prev_ep_cumulative_rewards = before
        return observation, info

    def on_step(self, action: str, result: StepResult) -> StepResult:
        observation, reward, terminated, truncated, info = result
        info["step_counter"] = self.step_counter = turns = self.step_counter + 1
        info["cumulative_rewards"] = self.cumulative_rewards = total = self.cumulative_rewards + reward
        if info.get("invalid"):
            self.invalid_actions += 1
        if info.get("use_tool"):
            self.tool_calls += 1
        if terminated or truncated:
            info["metrics"] = {
                **info.get("metrics", {}),
                "return": total,
                "turns": turns,
                "invalid_actions": self.invalid_actions,
                "tool_calls": self.tool_calls,
            }
        return observation, reward, terminated, truncated, info


class TimeLimit(Wrapper):
    """Truncates an episode that has not ended after `max_turns` steps.

    Args:
        env: The environment.
        max_turns: Maximum number of steps, at least 1. If the last of them ends the episode by its own
            rules, the episode is terminated, not truncated.
    """

    state_fields = ("turns",)
    max_return = None  # the environment's best return may take more turns

    def __init__(self, env: Env, *, max_turns: int) -> None:
        super().__init__(env)
        self.max_turns = check_int("max_turns", max_turns, 1)
        self.turns = 0

    def on_reset(self, observation: Observation, info: Info) -> ResetResult:
        self.turns = 0
        return observation, info

    def on_step(self, action: str, result: StepResult) -> StepResult:
        observation, reward, terminated, truncated, info = result
        self.turns += 1
        if self.turns >= self.max_turns and not (terminated or truncated):
            truncated = True
            info.setdefault("success", False)
            self.end_episode()
        return observation, reward, terminated, truncated, info
