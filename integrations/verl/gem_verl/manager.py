"""`GemAgentLoopManager`: one config option that activates GEM in every process that plays or trains.

+actor_rollout_ref.rollout.agent.agent_loop_manager_class=gem_verl.GemAgentLoopManager
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import ray
from ray.exceptions import RayActorError
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ
from verl.workers.rollout.utils import get_max_position_embeddings

from gem_core.errors import PolicyError
from gem_core.trainers.interface import expect_listed
from gem_verl import SUPPORTED, estimators, failures, loop  # noqa: F401  register the estimators and the loop
from gem_verl.options import TRAINER_MODES, check_config, check_data, estimator_names
from gem_verl.rows import AGENT_NAME, ROW_COLUMNS

logger = logging.getLogger("verl.gem")

expect_listed(SUPPORTED, "manager")
_Worker: Any = AgentLoopWorkerTQ.__ray_metadata__.modified_class  # a Ray actor cannot be a base class


class GemAgentLoopWorker(_Worker):  # type: ignore[misc]
    """verl's worker, extended to register the agent loop and pass it facts that verl does not."""

    _engine_died: asyncio.Future[None] | None = None

    async def watch(self) -> None:
        """Wait for the death of an inference server, and raise the error of the request that noticed it."""
        self._engine_died = asyncio.get_running_loop().create_future()
        await self._engine_died

    async def _run_prompt(
        self, prompt: dict[str, Any], sampling_params: Any, trajectory: Any, **options: Any
    ) -> None:
        group = failures.Group(
            samples=int(prompt.get("__rollout_n__", self.config.actor_rollout_ref.rollout.n)),
            position_limit=get_max_position_embeddings(self.model_config.hf_config),
            validating=bool(trajectory["validate"]),
            report=self.config.trainer.v1.trainer_mode in TRAINER_MODES,
        )
        failures.group.set(group)  # for this task only: each prompt runs in its own
        await super()._run_prompt(prompt, sampling_params, trajectory, **options)

    async def _run_agent_loop(self, sampling_params: Any, trajectory: Any, **fields: Any) -> Any:
        try:
            return await super()._run_agent_loop(sampling_params, trajectory, **fields)
        except Exception as error:
            # vLLM's error is the cause; Ray puts its name into the name of the class.
            died = isinstance(error, RayActorError) or "EngineDeadError" in type(error).__name__
            if died and self._engine_died is not None and not self._engine_died.done():
                self._engine_died.set_exception(error)
            raise


class GemAgentLoopManager(AgentLoopManagerTQ):  # type: ignore[misc]
    """verl's manager with GEM's workers; registers the estimators in the process where verl calls them.

    Raises:
        ConfigError: An option, or the program that creates the manager, is not supported.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        options = check_config(self.config)
        logger.info(
            "agent loop %r and estimators %s are registered; %s", AGENT_NAME, [*estimator_names()], options
        )
        self.agent_loop_workers_class = ray.remote(GemAgentLoopWorker)

    async def _init_agent_loop_workers(self) -> None:
        await super()._init_agent_loop_workers()
        self._watches = [worker.watch.remote() for worker in self.agent_loop_workers]

    def check_workers(self, timeout: float = 0.0) -> None:
        """Check that all processes that play episodes are alive.

        Args:
            timeout: Seconds to wait for the report that a process has died.

        Raises:
            PolicyError: A worker or an inference server has died.
        """
        ended, _ = ray.wait(self._watches, timeout=timeout)
        try:
            ray.get(ended)
        except Exception as error:
            raise PolicyError(
                "a process that plays episodes died, so the episodes of this step will not end; run the same "
                "command again: with trainer.resume_mode=auto it continues from the last checkpoint"
            ) from error

    def generate_sequences(self, prompts: Any) -> None:
        """Check the prompts and pass them to the workers.

        verl itself would log an environment that cannot be built and continue.

        Raises:
            GemError: A row names no environment, or its environment cannot be built or shown.
            ConfigError: See `check_data`.
        """
        columns = {name: list(prompts[name]) for name in ROW_COLUMNS if name in prompts}
        rows = ({name: values[n] for name, values in columns.items()} for n in range(len(prompts)))
        check_data(self.config, rows)
        super().generate_sequences(prompts)
