"""`GemAgentLoopManager`: one config option that activates GEM in every process that plays or trains.

+actor_rollout_ref.rollout.agent.agent_loop_manager_class=gem_verl.GemAgentLoopManager
"""

from __future__ import annotations

import functools
import logging
from typing import Any

import ray
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ
from verl.workers.rollout.utils import get_max_position_embeddings

from gem_core.trainers.interface import expect
from gem_verl import SUPPORTED, estimators, failures, loop
from gem_verl.options import (
    ESTIMATORS,
    TRAINER_MODES,
    check_config,
    check_played,
    images_unsupported,
)
from gem_verl.rows import AGENT_NAME, ROW_COLUMNS, check_rows

logger = logging.getLogger("verl.gem")

SUPPORTED.require()
_Worker: Any = AgentLoopWorkerTQ.__ray_metadata__.modified_class  # a Ray actor cannot be a base class

expect(SUPPORTED, AgentLoopManagerTQ, "generate_sequences", "self", "prompts")
expect(SUPPORTED, _Worker, "_run_prompt", "self", "prompt", "sampling_params", "trajectory", exact=False)
expect(SUPPORTED, _Worker, "_run_agent_loop", "self", "sampling_params", "trajectory", exact=False)


class GemAgentLoopWorker(_Worker):  # type: ignore[misc]
    """verl's worker, extended to register the agent loop and pass it facts that verl does not."""

    async def _run_prompt(
        self, prompt: dict[str, Any], sampling_params: Any, trajectory: Any, **options: Any
    ) -> None:
        if not trajectory["validate"]:
            samples = int(prompt.get("__rollout_n__", self.config.actor_rollout_ref.rollout.n))
            report = self.config.trainer.v1.trainer_mode in TRAINER_MODES
            failures.group.set(failures.Group(samples, report=report))  # each prompt runs in its own task
        await super()._run_prompt(prompt, sampling_params, trajectory, **options)

    async def _run_agent_loop(self, sampling_params: Any, trajectory: Any, **fields: Any) -> Any:
        loop.validating.set(bool(trajectory["validate"]))  # for this task only: each session is one
        if self.rollout_config.max_model_len is None:
            loop.position_limit.set(get_max_position_embeddings(self.model_config.hf_config))
        return await super()._run_agent_loop(sampling_params, trajectory, **fields)


class GemAgentLoopManager(AgentLoopManagerTQ):  # type: ignore[misc]
    """verl's manager with GEM's workers; registers the estimators in the process where verl calls them.

    Raises:
        ConfigError: An option, or the program that creates the manager, is not supported.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        options = check_config(self.config, trainer_mode=self.config.trainer.v1.trainer_mode)
        logger.info("agent loop %r and estimators %s are registered; %s", AGENT_NAME, [*ESTIMATORS], options)
        self.agent_loop_workers_class = ray.remote(GemAgentLoopWorker)
        self._wrappers = options.wrappers

    def generate_sequences(self, prompts: Any) -> None:
        """Check the prompts and pass them to the workers.

        verl itself would log an environment that cannot be built and continue.

        Raises:
            GemError: A row names no environment, or its environment cannot be built or shown.
            ConfigError: See `check_played`.
        """
        columns = {name: list(prompts[name]) for name in ROW_COLUMNS if name in prompts}
        rows = ({name: values[n] for name, values in columns.items()} for n in range(len(prompts)))
        default = self.config.actor_rollout_ref.rollout.agent.default_agent_loop
        if check_rows(rows, self._wrappers, default, functools.partial(images_unsupported, self.config)):
            check_played(self.config)
        super().generate_sequences(prompts)


__all__ = ["GemAgentLoopManager", "GemAgentLoopWorker", "estimators"]
