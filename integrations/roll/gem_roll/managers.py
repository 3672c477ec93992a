"""Env managers for a YAML's ``env_manager_cls``.

`GemTrajEnvManager` and `GemStepEnvManager` play episodes with gem_core: tasks are chosen by the numbers of
the group and the episode, the sampled tokens stay unchanged, and limits end an episode.
"""

from __future__ import annotations

import asyncio
import copy
import functools
from dataclasses import replace
from typing import Any

import ray
from roll.distributed.scheduler.protocol import DataProto
from roll.pipeline.agentic.env_manager.traj_env_manager import TrajEnvManager
from roll.utils.telemetry import attach_trace_context, get_tracer

from gem_core.core import Split
from gem_core.rollout import RowKind
from gem_core.trainers.interface import expect_listed
from gem_core.trainers.player import EpisodePlayer
from gem_roll import SUPPORTED
from gem_roll.env import register_placeholder
from gem_roll.options import GemOptions, check_tag
from gem_roll.policy import ProxyPolicy, Stopped
from gem_roll.rows import pack_episode
from gem_roll.tasks import TaskTable, table_of

expect_listed(SUPPORTED, "managers")


class GemTrajEnvManager(TrajEnvManager):  # type: ignore[misc]
    """Plays episodes with gem_core and returns episode rows. ROLL passes all arguments by name."""

    rows: RowKind = "episode"

    def __init__(self, *, env_config: Any, mode: str = "train", **others: Any) -> None:
        options = GemOptions.from_config(others["pipeline_config"])  # imports modules with environments
        self._source, wrappers = check_tag(others["pipeline_config"], str(env_config["tag"]))
        env_config = copy.copy(env_config)
        env_config["env_type"], env_config["config"] = register_placeholder(), {}
        super().__init__(env_config=env_config, mode=mode, **others)
        self.split: Split = "train" if mode == "train" else "eval"
        self._group_id, self._env_id = int(env_config["group_id"]), int(env_config["env_id"])
        generating = self.worker_config.generating_args
        longest = generating.max_new_tokens
        self._options = replace(
            options,
            wrappers=wrappers,
            system_prompt=self.agent_system_template or None,
            max_turns=env_config.get("max_steps"),
            max_tokens_per_turn=min(env_config.get("max_tokens_per_step") or longest, longest),
        )
        self._player, pad_id = EpisodePlayer(self._options, self.tokenizer), self.tokenizer.pad_token_id
        self._player.require_engine_stops(
            [pad_id], f"make it the model's eos_token, which is {self.tokenizer.eos_token!r}"
        )
        stop_ids = self._player.stop_ids | {pad_id}
        self._policy = ProxyPolicy(
            self.llm_proxy, generating.to_dict(), self._env_id, stop_ids, lambda: self.running
        )
        self._first_step: int | None = None

    @functools.cached_property
    def _tasks(self) -> TaskTable:
        """Tasks of the tag; not created if ROLL never validates."""
        return table_of(
            self.pipeline_config,
            self.worker_config,
            str(self.env_config["tag"]),
            self._source,
            self.split,
            self._options.tasks if self.split == "train" else self._options.eval_tasks,
        )

    def update_step(self, global_step: int, *args: Any) -> None:
        """Record the first step of this process, which is not 0 in a run resumed from a checkpoint."""
        if self._first_step is None:
            self._first_step = global_step
        super().update_step(global_step, *args)

    def run_rollout_loop(self, data: DataProto) -> None:
        """Play one episode after another until ROLL's queue closes or ROLL stops this manager."""
        self.running = True
        self.group_seed = data.meta_info["seed"] + self.env_config["group_seed"]
        queue, slot = self.output_queue, (self._group_id, self._env_id)
        while (number := ray.get(queue.get_episode_id.remote(*slot))) is not None:  # None means closed
            self.episode_id, step = number, self.current_step  # the queue drops rollouts older than its step
            try:
                self._put(step, self._play())
            except Stopped:
                break
        self._put(self.current_step, None)

    def _put(self, step: int, rollout: DataProto | None) -> None:
        """Put an episode that started at `step` into the queue; None means that this manager is done."""
        ray.get(self.output_queue.put.remote(self._group_id, self.episode_id, step, rollout, self._env_id))

    def _play(self) -> DataProto:
        """Play the episode with the number `episode_id`; return its rows."""
        group = f"{self.env_config['tag']}_{self._group_id}_{self.episode_id}_{self.group_seed}"
        names = {"traj_id": f"{group}_{self._env_id}", "traj_group_id": group}
        # ROLL numbers the episodes of each process from 0, with this many per step.
        earlier = (self._first_step or 0) * self.worker_config.max_traj_per_env
        task = self._tasks(self._group_id, earlier + self.episode_id)
        with (
            attach_trace_context(self.trace_meta),
            get_tracer("env_manager").start_as_current_span("trajectory", attributes=names),
        ):
            episode = asyncio.run(
                self._player.play(
                    task,
                    self._policy,
                    split=self.split,
                    metadata={"index": task["index"], "step": max(self.current_step, 0), "group": group},
                    max_total_tokens=self.pipeline_config.sequence_length,
                    request_id=names["traj_id"],
                )
            )
        return pack_episode(
            episode,
            self.rows,
            length=self.pipeline_config.sequence_length,
            pad_id=self.tokenizer.pad_token_id,
            with_logprobs=self._policy.wants_logprobs,
            fields={f"{name}s": self.env_config[name] for name in ("env_id", "group_id", "tag")} | names,
        )


class GemStepEnvManager(GemTrajEnvManager):
    """Plays episodes with gem_core and returns turn rows."""

    rows = "turn"
