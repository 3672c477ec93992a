"""Env managers for a YAML's ``env_manager_cls``.

`GemTrajEnvManager` and `GemStepEnvManager` play episodes with gem_core's `EnvPool`: tasks by the
number of the group and episode, tokens as they were sampled, limits that end an episode. `TrajEnvManager`
and `StepEnvManager` are ROLL's own, which find our environments in `gem.make` because of the import.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import threading
from collections.abc import Sequence
from typing import Any

import ray
from roll.distributed.scheduler.protocol import DataProto
from roll.pipeline.agentic.env_manager.step_env_manager import StepEnvManager as RollStepEnvManager
from roll.pipeline.agentic.env_manager.traj_env_manager import TrajEnvManager as RollTrajEnvManager
from roll.utils.telemetry import attach_trace_context, get_tracer

from gem_core.core import Split
from gem_core.errors import ConfigError
from gem_core.rollout import EnvPool, Episode, TraceWriter
from gem_core.tasks import EnvChoice
from gem_roll import upstream
from gem_roll.env import PREFIX, GemEnv, read_env_type, register
from gem_roll.options import GemOptions, check_tag
from gem_roll.policy import ProxyPolicy, Stopped, stop_ids_of
from gem_roll.rows import Row, column, step_rows, to_batch, trajectory_rows
from gem_roll.tasks import TaskTable, table_of

upstream.check_managers(RollTrajEnvManager)


class _Registers:
    env: Any

    """Registers the environment of the tag before ROLL's constructor makes it, for its split."""

    def __init__(
        self, worker_config: Any, pipeline_config: Any, env_config: Any, *args: Any, **kwargs: Any
    ) -> None:
        GemOptions.from_config(pipeline_config)  # imports what registers environments of your own
        # The signature is checked with that of `TrajEnvManager`.
        given = inspect.signature(super().__init__).bind(
            worker_config, pipeline_config, env_config, *args, **kwargs
        )
        split: Split = "train" if given.arguments.get("mode", "train") == "train" else "eval"
        if str(env_config["env_type"]).startswith(PREFIX):
            env_id = read_env_type(env_config["env_type"], "env_type")
            register(env_id)
            source = EnvChoice(env_id, dict(env_config["config"])).for_split(split)
            env_config = copy.copy(env_config)
            env_config["config"] = source.env_kwargs
        super().__init__(worker_config, pipeline_config, env_config, *args, **kwargs)  # type: ignore[call-arg]
        if isinstance(self.env, GemEnv):
            self.env.split = split


class _Builds(_Registers):
    """Builds the environment at once, so that what is wrong with it shows before anything is played."""

    env: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if isinstance(self.env, GemEnv):
            self.env.build()


class TrajEnvManager(_Builds, RollTrajEnvManager):  # type: ignore[misc]
    """ROLL's own: one row per episode."""


class StepEnvManager(_Builds, RollStepEnvManager):  # type: ignore[misc]
    """ROLL's own: one row per turn."""


class GemTrajEnvManager(_Registers, RollTrajEnvManager):  # type: ignore[misc]
    """One row per episode."""

    by_step = False

    def __init__(
        self,
        worker_config: Any,
        pipeline_config: Any,
        env_config: Any,
        tokenizer: Any,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        tag = str(env_config["tag"])
        check_tag(pipeline_config, tag)
        super().__init__(worker_config, pipeline_config, env_config, tokenizer, *args, **kwargs)
        if not isinstance(self.env, GemEnv):
            raise ConfigError(f"custom_envs.{tag}.env_type made a {type(self.env).__name__}, not one of ours")
        self.split = "train" if self.mode == "train" else "eval"
        options = self._options = GemOptions.from_config(pipeline_config)
        self._envs = EnvPool(self.env.wrappers)
        self._context = options.make_context_with(tokenizer, system_prompt=self.agent_system_template or None)
        self._policy = ProxyPolicy(
            self.llm_proxy,
            worker_config.generating_args.to_dict(),
            int(env_config["env_id"]),
            stop_ids_of(self._context, tokenizer),
            lambda: self.running,
        )
        training = self.mode == "train"
        self._section = pipeline_config.train_env_manager if training else pipeline_config.val_env_manager
        self._traces = _writer(options, self.split, tokenizer)
        self._first_step: int | None = None

    @functools.cached_property
    def _tasks(self) -> TaskTable:
        """The tasks of the tag; not made where ROLL never validates."""
        training = self.mode == "train"
        return table_of(
            self.pipeline_config,
            self._section,
            str(self.env_config["tag"]),
            self.env.source,
            "train" if training else "eval",
            self._options.tasks if training else self._options.val_tasks,
        )

    def update_step(self, global_step: int, *args: Any, **kwargs: Any) -> None:
        """Note the first step of this process, which is not 0 where a run goes on from a checkpoint."""
        if self._first_step is None:
            self._first_step = global_step
        super().update_step(global_step, *args, **kwargs)

    def run_rollout_loop(self, data: DataProto) -> None:
        """Play episodes for as long as ROLL has numbers for them."""
        self.running = True
        self.group_seed = data.meta_info["seed"] + self.env_config["group_seed"]
        group_id, env_id = self.env_config["group_id"], self.env_config["env_id"]
        while True:
            self.episode_id = ray.get(self.output_queue.get_episode_id.remote(group_id, env_id))
            start_step = self.current_step
            if self.episode_id is None:
                break
            try:
                rollout = self._play()
            except Stopped:
                break
            put = self.output_queue.put.remote(group_id, self.episode_id, start_step, rollout, env_id)
            ray.get(put)
        ray.get(self.output_queue.put.remote(group_id, self.episode_id, self.current_step, None, env_id))

    def _play(self) -> DataProto:
        """The rows of the episode that is next."""
        group_id, env_id = self.env_config["group_id"], self.env_config["env_id"]
        group = f"{self.env_config['tag']}_{group_id}_{self.episode_id}_{self.group_seed}"
        name = f"{group}_{env_id}"
        spans = get_tracer("env_manager")
        with (
            attach_trace_context(self.trace_meta),
            spans.start_as_current_span("trajectory", attributes={"traj_id": name, "traj_group_id": group}),
        ):
            # ROLL numbers the episodes of each process from 0, so many a step.
            before = (self._first_step or 0) * self._section.max_traj_per_env
            task = self._tasks.task(group_id, before + self.episode_id)
            step = max(self.current_step, 0)
            limits = self._options.play_kwargs() | {"max_turns": self.env_config.get("max_steps")}
            episode = asyncio.run(
                self._envs.play(
                    task,
                    self._policy,
                    self._context,
                    max_tokens_per_turn=self._max_tokens_per_turn(),
                    max_total_tokens=self.pipeline_config.sequence_length,
                    request_id=name,
                    metadata={"index": task["index"], "step": step, "group": group, "split": self.split}
                    | ({} if task["item"] is None else {"item": task["item"]}),
                    **limits,
                )
            )
        if self._traces is not None:
            with _shared:
                self._traces.write(episode)
        rollout = self.formulate_rollouts(episode)
        for key, value in (("traj_group_id", group), ("traj_id", name)):
            rollout.non_tensor_batch[key] = column([value] * len(rollout))
        return rollout

    def _max_tokens_per_turn(self) -> int:
        """ROLL's ``max_tokens_per_step``, or where that is null, what its engine samples at most."""
        engine: int = self.worker_config.generating_args.max_new_tokens
        return min(self.env_config.get("max_tokens_per_step") or engine, engine)

    def formulate_rollouts(self, episode: Episode) -> DataProto:
        """The rows of an episode."""
        pad_id = self.tokenizer.pad_token_id
        return to_batch(
            self.lay_out(episode, pad_id),
            episode,
            length=self.pipeline_config.sequence_length,
            pad_id=pad_id,
            with_logprobs=self._policy.wants_logprobs,
            fields={
                "env_ids": self.env_config["env_id"],
                "group_ids": self.env_config["group_id"],
                "tags": self.env_config["tag"],
            },
            by_step=self.by_step,
        )

    def lay_out(self, episode: Episode, pad_id: int) -> Sequence[Row]:
        """Rows before they are padded."""
        return trajectory_rows(episode, pad_id)


class GemStepEnvManager(GemTrajEnvManager):
    """One row per turn."""

    by_step = True

    def lay_out(self, episode: Episode, pad_id: int) -> Sequence[Row]:
        """Rows before they are padded."""
        return step_rows(episode, pad_id)


_shared = threading.Lock()
_writers: dict[tuple[str, str], TraceWriter] = {}
"""By folder and split, for all managers of the process; each has a thread of its own."""


def _writer(options: GemOptions, split: str, tokenizer: Any) -> TraceWriter | None:
    if options.traces is None:
        return None
    with _shared:
        if (options.traces, split) not in _writers:
            # Its texts are decoded in all threads, and a tokenizer is for one.
            for name, writer in options.trace_writers(copy.deepcopy(tokenizer)).items():
                _writers.setdefault((options.traces, name), writer)
        return _writers[options.traces, split]
