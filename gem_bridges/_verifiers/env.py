"""``verifiers:TASKSET``: a taskset of verifiers, and the environment that plays it.

A response is the agent's reply, and an observation holds the messages that are new to it. verifiers scores a
whole run, so the reward comes with the last step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from verifiers.v1.configs.agent import agent_config_fields
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.utils.loaders import load_environment, resolve_env_config

from gem_bridges._foreign import ForeignEnv, check_dict
from gem_bridges._verifiers.run import VerifiersRun
from gem_core._core import ResetResult, StepResult
from gem_core._util.checks import check_number
from gem_core.errors import ConfigError, EnvError

MAX_TURNS = 100
"""Default turn limit, because verifiers limits turns only per agent, and by default not at all."""
ENDLESS_ITEMS = 1000
"""Number of items that are used of an endless taskset."""


class VerifiersEnv(ForeignEnv):
    """A taskset of verifiers, whose tasks are the items.

    Args:
        taskset: Id of an installed taskset package, as for `vf-eval`.
        config: Options of the taskset (``--env.taskset``).
        env: Options of the environment (``--env``).
        max_turns: Number of replies after which an episode is truncated, without a reward.
        success_at: Smallest reward that counts as a success.
        timeout: Seconds to wait for verifiers in a step.

    Raises:
        ConfigError: The taskset cannot be loaded, or it needs several agents or a container.
    """

    blocking = True
    shows_images = True

    def __init__(
        self,
        taskset: str,
        config: dict[str, Any] | None = None,
        env: dict[str, Any] | None = None,
        max_turns: int = MAX_TURNS,
        success_at: float = 1.0,
        timeout: float = 300.0,
    ) -> None:
        name = f"verifiers:{taskset}"
        options = {
            **check_dict("env", env),
            "taskset": {**check_dict("config", config), "id": taskset},
        }
        try:
            self.env = load_environment(resolve_env_config(options))
        except (ImportError, ValueError, TypeError, AttributeError) as error:
            raise ConfigError(f"{name} cannot be loaded: {' '.join(str(error).split())}") from error
        agents = list(agent_config_fields(self.env.config))
        if len(agents) != 1:
            raise ConfigError(f"{name} has the agents {', '.join(agents)}; only one agent is supported")
        if type(self.env.taskset).task_type().NEEDS_CONTAINER:
            raise ConfigError(f"{name} needs a container, which this bridge does not support")
        self.timeout = check_number("timeout", timeout, above=0)
        self._source: Iterator[Any] = iter(self.env.taskset)
        endless = bool(getattr(type(self.env.taskset), "INFINITE", False))
        self._tasks: list[Any] = [] if endless else list(self._source)
        if not endless and not self._tasks:
            raise ConfigError(f"{name} has no tasks; check the arguments of the environment")
        super().__init__(name, max_turns, success_at, ENDLESS_ITEMS if endless else len(self._tasks))
        self.current: VerifiersRun | None = None

    def begin(self, seed: int) -> ResetResult:
        assert self.item is not None
        while len(self._tasks) <= self.item:
            self._tasks.append(next(self._source))
        self._cancel()
        self.current = VerifiersRun(self.env, self._tasks[self.item], self.timeout)
        messages = self.current.next_messages()
        if messages is None:
            raise EnvError("the run ended before the agent was asked")
        return _observation(messages), {}

    def advance(self, action: str) -> StepResult:
        assert self.current is not None
        self.current.reply(action)
        messages = self.current.next_messages()
        if messages is not None:
            return _observation(messages), 0.0, False, False, {}
        (trace,) = self.current.traces
        self.current = None
        truncated = bool(trace.is_truncated or trace.metrics.get("env_truncated"))
        metrics = {name: float(value) for name, value in trace.metrics.items() if value is not None}
        rewards = {name: score.value for name, score in trace.rewards.items() if score is not None}
        info = {"metrics": metrics, "rewards": rewards, "details": dict(trace.info)}
        return "", float(trace.reward), not truncated, truncated, info

    def close(self) -> None:
        super().close()
        self._cancel()

    def _cancel(self) -> None:
        if self.current is not None:
            self.current.cancel()
            self.current = None


def _observation(messages: list[Any]) -> Any:
    """Return messages as text, or as content parts if one of them holds an image."""
    parts: list[dict[str, Any]] = []
    for message in messages:
        content = message_to_wire(message).get("content") or ""
        parts += [{"type": "text", "text": content}] if isinstance(content, str) else content
    if all(part["type"] == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return [{"type": part["type"], part["type"]: part[part["type"]]} for part in parts]
