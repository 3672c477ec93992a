"""Our environments for verifiers: a taskset, an environment that plays it, and an in-process harness.

    vf-eval gem-verifiers --env.taskset.env-id game:Mastermind-v0 --env.player.harness.id gem-verifiers

verifiers imports this package by the id "gem-verifiers". The tasks are those of `gem_core.tasks.make_tasks`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import httpx
import verifiers.v1 as vf
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.runtimes import ProgramResult

from gem_chat._special_tokens import map_texts, separate_known
from gem_core import Env, Observation, render_observation
from gem_core.tasks import EVAL_SEEDS, EnvChoice, make_tasks, read_task, reset_arguments

__all__ = ["GemEnv", "GemHarness", "GemTaskset"]

_TRAIN_TASKS = 1_000_000
"""Number of training tasks of an environment without items."""
_TOLERANCE = 1e-6
"""Tolerance for rounding errors in sums of rewards."""


class GemTasksetConfig(vf.TasksetConfig):  # type: ignore[misc]  # untyped, as below
    """Options under ``--env.taskset``."""

    env_id: str = "game:GuessTheNumber-v0-easy"
    """Id, or ``ID(key=value, ...)``; `gem-core envs` lists them."""
    wrappers: str = ""
    """Wrappers, such as ``tools(tools='python')``."""
    split: Literal["train", "eval"] = "eval"
    """Whether the tasks are for training or evaluation; no task is in both."""
    seed: int = 0
    """Seed of the order of training tasks."""
    start: int = 0
    """Index of the first task."""


class _GemData(vf.TaskData):  # type: ignore[misc]
    """One task: an episode of one environment."""

    row: dict[str, Any]
    """The task row (`gem_core.tasks.TaskRow`)."""
    wrappers: str


class _GemTask(vf.Task[_GemData]):  # type: ignore[misc]
    """One episode. Its gold check uses the oracle."""

    @property
    def key(self) -> str:
        """Text that identifies the task."""
        row = self.data.row
        choice = EnvChoice(row["env_id"], row["env_kwargs"])
        return f"{choice.label} {self.data.wrappers} seed={row['seed']} item={row['item']}"

    async def validate(self, runtime: Any) -> bool | None:
        """Return whether the oracle reaches the best return; None if there is no oracle."""
        with _make(self.data) as env:
            env.reset(**reset_arguments(read_task(self.data.row)))
            if env.max_return is None or env.oracle_action() is None:
                return None
            total, ended = 0.0, False
            while not ended:
                action = env.oracle_action()
                if action is None:
                    return False
                _, reward, terminated, truncated, _ = env.step(action)
                total, ended = total + reward, terminated or truncated
            return total >= env.max_return - _TOLERANCE or not env.oracle_certain


class GemTaskset(vf.Taskset[_GemTask, GemTasksetConfig]):  # type: ignore[misc]
    """The tasks of one environment: its items of a split, or an endless sequence with one task per seed."""

    INFINITE = True

    def load(self) -> Iterator[_GemTask]:
        """Yield the tasks."""
        config = self.config
        choice = EnvChoice.parse(config.env_id)
        count = (EVAL_SEEDS.stop if config.split == "eval" else _TRAIN_TASKS) - config.start
        tasks = make_tasks([choice], count, seed=config.seed, split=config.split, start=config.start)
        for row in tasks:
            data = _GemData(name=f"{config.env_id}#{row['index']}", row=dict(row), wrappers=config.wrappers)
            with _make(data) as env:
                content = _shown(*env.reset(**reset_arguments(row)))
            prompt = content if isinstance(content, str) else [_message(content)]
            yield _GemTask(data.model_copy(update={"prompt": prompt}), config.task)


class _GemEnvConfig(vf.EnvConfig):  # type: ignore[misc]
    """Options under ``--env``."""

    player: vf.AgentConfig = vf.AgentConfig()
    """The agent that plays."""


class GemEnv(vf.Env[_GemEnvConfig]):  # type: ignore[misc]
    """Plays an episode: each reply is an action, and each observation the next turn of the user.

    The reward "return" is the sum of the rewards; ``trace.info["turn_rewards"]`` has one for each turn. The
    metrics are "success", "turns", "format_error_rate", and "env_truncated".
    """

    async def run(self, task: _GemTask, agents: Any) -> None:
        """Play one episode."""
        rewards: list[float] = []
        invalid, truncated = 0, False
        info: Mapping[str, Any] = {}
        env = _make(task.data)
        try:
            await env.areset(**reset_arguments(read_task(task.data.row)))
            async with agents.player.interaction(task) as interaction:
                segment = await interaction.turn()
                while not segment.terminated:
                    observation, reward, terminated, truncated, info = await env.astep(segment.last_reply)
                    rewards.append(reward)
                    invalid += info.get("invalid") is not None
                    if terminated or truncated:
                        break
                    content = _shown(observation, info)
                    segment = await interaction.turn(
                        content if isinstance(content, str) else [_message(content)]
                    )
        finally:
            env.close()
        trace = interaction.trace
        trace.record_reward("return", sum(rewards))
        trace.record_metrics(
            {
                "success": float(bool(info.get("success"))),
                "turns": len(rewards),
                "format_error_rate": invalid / max(1, len(rewards)),
                "env_truncated": float(truncated),
            }
        )
        trace.info["turn_rewards"] = rewards


class _GemHarnessConfig(vf.HarnessConfig):  # type: ignore[misc]
    """Options of the harness: none."""


class GemHarness(vf.Harness[_GemHarnessConfig]):  # type: ignore[misc]
    """Requests one completion per turn in this process; verifiers' `null` starts a program for each turn."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_MCP = False
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: Any,
        data: Any,
        tool_interception_url: str | None = None,
    ) -> Any:
        """Request the next completion; verifiers records it."""
        system, prompt = self.resolve_prompt(data)
        messages: list[Any] = [] if system is None else [{"role": "system", "content": system}]
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += [one if isinstance(one, dict) else message_to_wire(one) for one in prompt or []]
        async with httpx.AsyncClient(timeout=None, trust_env=False) as client:
            answer = await client.post(
                f"{endpoint}/chat/completions",
                headers={"Authorization": f"Bearer {secret}"},
                json={"model": ctx.model, "messages": messages},
            )
        failed = answer.status_code != 200
        return ProgramResult(exit_code=int(failed), stdout="", stderr=answer.text if failed else "")


def _make(data: _GemData) -> Env:
    return EnvChoice(data.row["env_id"], data.row["env_kwargs"]).make(data.wrappers)


def _shown(observation: Observation, info: Mapping[str, Any]) -> Observation:
    """Return what the model sees; a server of the model must not parse control tokens that it spells."""
    return map_texts(separate_known, render_observation(observation, info))


def _message(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}
