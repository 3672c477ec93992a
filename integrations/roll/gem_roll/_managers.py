"""Env managers for a YAML's ``env_manager_cls``.

`GemTrajEnvManager` and `GemStepEnvManager` play episodes with gem_core: tasks are chosen by the numbers of
the group and the episode, the sampled tokens stay unchanged, and limits end an episode. As in ROLL, a manager
itself requests each response from its LLM proxy, so it is the policy of its episodes.
"""

from __future__ import annotations

import asyncio
import copy
import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ray
import torch
from roll.distributed.scheduler.protocol import DataProto
from roll.pipeline.agentic.env_manager.traj_env_manager import TrajEnvManager
from roll.utils.telemetry import attach_trace_context, get_tracer
from tensordict import TensorDict

from gem_chat import EpisodePlayer
from gem_core._core import Split
from gem_core.errors import PolicyError
from gem_core.rollout import Generation
from gem_core.rollout._policy import inferred_finish
from gem_core.rollout._rows import RowSplit
from gem_core.trainers._interface import expect_listed
from gem_roll import _SUPPORTED
from gem_roll._env import register_placeholder
from gem_roll._options import GemOptions, check_tag
from gem_roll._rows import pack_episode
from gem_roll._tasks import TaskTable, table_of

expect_listed(_SUPPORTED, "managers")


class Stopped(Exception):
    """Raised when ROLL ends the rollout; the current episode is discarded."""


class GemTrajEnvManager(TrajEnvManager):  # type: ignore[misc]
    """Plays episodes with gem_core and returns one row per episode. ROLL passes all arguments by name."""

    several_rows = False

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
        self._needs = options.choose_estimator(others["pipeline_config"]).needs
        # ROLL's own estimators take the rows of an episode for its turns.
        joins = others["pipeline_config"].adv_estimator == "agentic_reinforce"
        self._split: RowSplit = "auto" if joins or not self.several_rows else "turn"
        self._player, pad_id = EpisodePlayer(self._options, self.tokenizer), self.tokenizer.pad_token_id
        self._player.require_engine_stops(
            [pad_id], f"make it the model's eos_token, which is {self.tokenizer.eos_token!r}"
        )
        self._stop_ids = self._player.stop_ids | {pad_id}
        self._generating = generating.to_dict()
        self._with_logprobs = self._generating.get("logprobs") is not None
        self._first_step: int | None = None

    @functools.cached_property
    def _tasks(self) -> TaskTable:
        """Tasks of the tag; not created if ROLL never validates."""
        tag, path = str(self.env_config["tag"]), self._options.task_file(self.split)
        return table_of(self.pipeline_config, self.worker_config, tag, self._source, self.split, path)

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

    async def generate(self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str) -> Generation:
        """Sample one response, repeating the request if ROLL aborted it to update the weights.

        The proxy blocks, and each manager has its own thread.

        Raises:
            Stopped: ROLL stopped this manager.
            PolicyError: Log-probs were requested, but the engine returned none.
        """
        ids = torch.tensor([list(prompt_ids)], dtype=torch.long)
        mask = torch.ones_like(ids)
        batch = {"input_ids": ids, "attention_mask": mask, "position_ids": mask.cumsum(-1) - 1}
        config = {**self._generating, "max_new_tokens": max_tokens}
        while self.running:
            # ROLL routes the requests of a source to one replica.
            lm_input = DataProto(batch=TensorDict(batch, batch_size=1), meta_info={"src_rank": self._env_id})
            output = self.llm_proxy.generate(messages=[], lm_input=lm_input, generation_config=config)
            if output is not None:
                return self._read(output, max_tokens)
        raise Stopped

    def _read(self, output: DataProto, max_tokens: int) -> Generation:
        """Return the response in the proxy's output."""
        ids = output.batch["responses"][0].tolist()
        logprobs = None
        if self._with_logprobs:
            if "infer_logprobs" not in output.batch:
                raise PolicyError(
                    "the engine reported no log-probs; to go without, set generating_args.logprobs: null"
                )
            # A pad token at the end gets 0.0, because ROLL treats it as padding.
            logprobs = output.batch["infer_logprobs"][0].tolist()[-len(ids) :] if ids else []
        # The proxy passes on why a response ended as a side effect. Only the engine sees stop strings.
        if "stop" in (output.meta_info.get("finish_reasons") or ()):
            return Generation(ids, logprobs, "stop")
        return Generation(ids, logprobs, inferred_finish(ids, max_tokens, self._stop_ids))

    def _put(self, step: int, rollout: DataProto | None) -> None:
        """Put an episode that started at `step` into the queue; None means that this manager has finished."""
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
                    self,
                    split=self.split,
                    metadata={"index": task["index"], "step": max(self.current_step, 0), "group": group},
                    max_total_tokens=self.pipeline_config.sequence_length,
                    request_id=names["traj_id"],
                )
            )
        return pack_episode(
            episode,
            several=self.several_rows,
            split=self._split,
            length=self.pipeline_config.sequence_length,
            pad_id=self.tokenizer.pad_token_id,
            with_logprobs=self._with_logprobs,
            fields={f"{name}s": self.env_config[name] for name in ("env_id", "group_id", "tag")} | names,
            needs=self._needs,
        )


class GemStepEnvManager(GemTrajEnvManager):
    """Plays episodes with gem_core and returns the rows that their contexts need; see `Episode.rows`."""

    several_rows = True
