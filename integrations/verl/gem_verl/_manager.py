"""`GemAgentLoopManager`: one config option that activates GEM in every process that plays or trains.

+actor_rollout_ref.rollout.agent.agent_loop_manager_class=gem_verl.GemAgentLoopManager
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import ray
from ray.exceptions import RayActorError
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ
from verl.utils.tensordict_utils import get_non_tensor_data
from verl.workers.rollout.utils import get_max_position_embeddings

from gem_core._core import Split
from gem_core._util.messages import error_line
from gem_core.errors import ConfigError, PolicyError
from gem_core.rollout._sources import SourceLedger
from gem_core.trainers._interface import expect_listed
from gem_verl import _SUPPORTED, _estimators, _failures, _loop  # noqa: F401  register the estimators and the loop
from gem_verl._options import TRAINER_MODES, check_config, check_data, estimator_names
from gem_verl._rows import AGENT_NAME, ROW_COLUMNS, agent_of

logger = logging.getLogger("verl.gem")

expect_listed(_SUPPORTED, "manager")
_Worker: Any = AgentLoopWorkerTQ.__ray_metadata__.modified_class  # a Ray actor cannot be a base class


class GemAgentLoopWorker(_Worker):  # type: ignore[misc]
    """verl's worker, which also registers the agent loop, passes facts to it, and counts episodes."""

    _engine_died: asyncio.Future[None] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._played: Counter[tuple[Split, str]] = Counter()

    async def watch(self) -> None:
        """Wait for the death of an inference server, and raise the error of the request that noticed it."""
        self._engine_died = asyncio.get_running_loop().create_future()
        await self._engine_died

    async def take_played(self) -> Counter[tuple[Split, str]]:
        """Return the number of episodes with a row to train on since the last call, by split and source."""
        played, self._played = self._played, Counter()
        return played

    async def _run_prompt(
        self, prompt: dict[str, Any], sampling_params: Any, trajectory: Any, **options: Any
    ) -> None:
        rollout = self.config.actor_rollout_ref.rollout
        # Where files are mixed, verl's columns are None in the rows of files that do not have them.
        agent = agent_of(prompt.get("agent_name"), rollout.agent.default_agent_loop)
        prompt["agent_name"] = agent
        for name in ("__rollout_n__", "__do_sample__", "priority"):
            if name in prompt and prompt[name] is None:
                del prompt[name]
        group = _failures.Group(
            samples=int(prompt.get("__rollout_n__", rollout.n)),
            position_limit=get_max_position_embeddings(self.model_config.hf_config),
            validating=bool(trajectory["validate"]),
            source=_failures.source_of(prompt.get("data_source")),
            agent=agent,
        )
        _failures.group.set(group)  # for this task only: each prompt runs in its own
        await super()._run_prompt(prompt, sampling_params, trajectory, **options)

    async def _run_agent_loop(self, sampling_params: Any, trajectory: Any, **fields: Any) -> Any:
        group = _failures.group.get()
        assert group is not None
        try:
            return await super()._run_agent_loop(sampling_params, trajectory, **fields)
        except Exception as error:
            cause = error_line(getattr(error, "cause", None) or error)  # of an error of a Ray actor
            await group.lose(_key(fields), cause)
            # vLLM's error is the cause; Ray puts its name into the name of the class.
            died = isinstance(error, RayActorError) or "EngineDeadError" in type(error).__name__
            if died and self._engine_died is not None and not self._engine_died.done():
                self._engine_died.set_exception(error)
            raise

    async def _compute_score(self, outputs: Any, kwargs: Any) -> None:
        """Do the same as verl, but lose an episode whose reward would end the run or spoil the weights."""
        await super()._compute_score(outputs, kwargs)
        score = outputs[-1].reward_score
        expected_now = self.reward_loop_worker_handles is not None  # otherwise all scores are computed later
        if (score is None and expected_now) or (isinstance(score, float | int) and not math.isfinite(score)):
            raise ConfigError(f"the reward is {score}: expected a finite number")

    async def _agent_loop_postprocess(self, output: Any, validate: bool, **fields: Any) -> None:
        await super()._agent_loop_postprocess(output, validate, **fields)
        group = _failures.group.get()
        assert group is not None
        outputs = output if isinstance(output, list) else [output]
        if any(any(row.response_mask) for row in outputs):
            self._played["eval" if group.validating else "train", group.source] += 1
        else:
            cause = "its response mask has no 1" if outputs else "it returned nothing"
            await group.lose(_key(fields), cause)


_DIED = (
    "a process that plays episodes died, so the episodes of this step will not end; run the same "
    "command again: with trainer.resume_mode=auto it continues from the last checkpoint"
)


@contextlib.contextmanager
def deaths_explained() -> Iterator[None]:
    """Say what to do if a process that plays episodes is found dead.

    Raises:
        PolicyError: A worker or an inference server has died.
    """
    try:
        yield
    except RayActorError as error:
        raise PolicyError(_DIED) from error


def _key(fields: Mapping[str, Any]) -> str:
    """Return a key of a sample that is unique in the run."""
    return f"{fields['uid']}_{fields['session_id']}"


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
        self._own_trainer = self.config.trainer.v1.trainer_mode in TRAINER_MODES
        self._ledgers: dict[Split, SourceLedger] = {"train": SourceLedger(), "eval": SourceLedger()}
        self._dispatched = 0

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
            raise PolicyError(_DIED) from error

    def generate_sequences(self, prompts: Any) -> None:
        """Check the prompts and pass them to the workers.

        verl itself would log an environment that cannot be built and continue.

        Raises:
            GemError: A row names no environment, or its environment cannot be built or shown.
            ConfigError: See `check_data`.
            EnvError: In a trainer mode of verl, a source lost all of its episodes.
            PolicyError: A worker has died.
        """
        columns = {name: list(prompts[name]) for name in ROW_COLUMNS if name in prompts}
        rows = ({name: values[n] for name, values in columns.items()} for n in range(len(prompts)))
        check_data(self.config, rows)
        if not self._own_trainer and not get_non_tensor_data(prompts, "validate", False):
            if self._dispatched >= self.config.data.train_batch_size:
                self._close_batch()
            self._dispatched += len(prompts)
        with deaths_explained():  # a worker may die before the trainer waits for its episodes
            super().generate_sequences(prompts)

    def _close_batch(self) -> None:
        """Count the episodes that ended since the last call; verl's trainers have no other place for it."""
        self._dispatched = 0
        played: Counter[tuple[Split, str]] = sum(
            ray.get([worker.take_played.remote() for worker in self.agent_loop_workers]), Counter()
        )
        for split, ledger in self._ledgers.items():
            ended = Counter({source: count for (of, source), count in played.items() if of == split})
            lost = [(episode.source, episode.cause) for episode in _failures.take_lost(split)]
            if ended or lost:
                counts = ledger.close_step(f"{split} episodes since the last batch", ended.elements(), lost)
                logger.log(logging.WARNING if lost else logging.INFO, "%s episodes: %s", split, counts)
