"""`ToolEnvWrapper`: GEM's tools around an environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from gem_bridges.compat.tools.base_tool import BaseTool
from gem_core import Env, Info, Observation, Wrapper
from gem_core._core import ResetResult, StepResult
from gem_core._util.checks import check_int
from gem_core.errors import ConfigError
from gem_envs.tools._wrapper import LAST_USE


class ToolEnvWrapper(Wrapper):
    """Runs the first tool call of a response; a response without one goes to the environment.

    For gem_core's own tools, use the wrapper `tools` instead, which supports more formats.

    Args:
        env: The environment.
        tools: Tools; the first whose call succeeds is used.
        tool_reward: Reward of a turn with a call.
        tool_success_reward: Additional reward if the call succeeded.
        tool_execute_error_reward: Reward of a turn whose call failed, instead of `tool_reward`; 0 for none.
        max_tool_uses: Number of tool turns per episode; None means no limit.

    Raises:
        ConfigError: `tool_execute_error_reward` is positive, or combined with another reward.
    """

    state_fields = ("tool_use_counter", "tool_success_counter")

    def __init__(
        self,
        env: Env,
        tools: Sequence[BaseTool],
        tool_reward: float = 0.0,
        tool_success_reward: float = 0.0,
        tool_execute_error_reward: float = 0.0,
        max_tool_uses: int | None = 10,
    ) -> None:
        super().__init__(env)
        if tool_execute_error_reward > 0 or (
            tool_execute_error_reward and (tool_reward or tool_success_reward)
        ):
            raise ConfigError(
                f"tool_execute_error_reward={tool_execute_error_reward}: expected a negative number, without "
                "tool_reward and tool_success_reward"
            )
        self.tools = list(tools)
        self.tool_reward = tool_reward
        self.tool_success_reward = tool_success_reward
        self.tool_execute_error_reward = tool_execute_error_reward
        self.max_tool_uses = check_int("max_tool_uses", max_tool_uses, 1, optional=True)
        self.tool_use_counter = self.tool_success_counter = 0

    @property
    def blocking(self) -> Literal[True]:  # type: ignore[override]
        """True, because a tool call waits."""
        return True

    def on_reset(self, observation: Observation, info: Info) -> ResetResult:
        info["prev_ep_tool_use_counter"] = self.tool_use_counter
        info["prev_ep_tool_success_counter"] = self.tool_success_counter
        self.tool_use_counter = self.tool_success_counter = 0
        explained = "\n".join(tool.instruction_string() for tool in self.tools)
        if len(self.tools) > 1:
            explained = f"Available tools:\n{explained}"
        self._count(info, use_tool=False)
        return f"{observation}\n{explained}", info

    def step(self, action: str) -> StepResult:
        call = self._call(action)
        if call is None:
            result = self.env.step(action)
            self._count(result[-1], use_tool=False)
            return result
        tool, failed, text, parsed = call
        self.tool_use_counter += 1
        self.tool_success_counter += not failed
        if self.tool_use_counter == self.max_tool_uses:
            text = f"{text}\n\n{LAST_USE}"
        reward = self.tool_reward if failed else self.tool_reward + self.tool_success_reward
        if failed and self.tool_execute_error_reward:
            reward = self.tool_execute_error_reward
        info: Info = {"parsed_action": parsed, "tool_type": tool.tool_type}
        self._count(info, use_tool=True)
        return text, float(reward), False, False, info

    def _call(self, action: str) -> tuple[BaseTool, bool, str, str] | None:
        """Return the tool that was used, whether it failed, its text, and the response up to the call."""
        if self.max_tool_uses is not None and self.tool_use_counter >= self.max_tool_uses:
            return None
        used = None
        for tool in self.tools:
            has_call, failed, text, parsed = tool.execute_action(action)
            if has_call:
                used = tool, failed, text, parsed
                if not failed:
                    break
        return used

    def _count(self, info: Info, *, use_tool: bool) -> None:
        info["use_tool"] = use_tool
        info["tool_use_counter"] = self.tool_use_counter
        info["tool_success_counter"] = self.tool_success_counter
