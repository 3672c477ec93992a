"""`Actor`: Oat's actor, playing environments instead of asking a reward oracle."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from oat.algorithms.ppo import PPOActor

from gem_chat import EpisodePlayer
from gem_chat._concurrency import EpisodeLoop, play_tasks
from gem_chat._failures import describe_failures
from gem_core._util.seeds import derive_rng
from gem_core.errors import ConfigError
from gem_core.rollout import Episode, Generation
from gem_core.tasks import TaskRow
from gem_core.trainers._interface import expect_listed
from gem_lab._engines.vllm import vllm_generation
from gem_oat import _SUPPORTED
from gem_oat._args import Args
from gem_oat._collect import collect
from gem_oat._policy import BatchedPolicy
from gem_oat._rows import draw_turns, pack_turns, turn_values
from gem_oat._tasks import progress_of

expect_listed(_SUPPORTED, "oat")
logger = logging.getLogger(__name__)


class Actor(PPOActor):  # type: ignore[misc]
    """Plays tasks with Oat's engine and returns one row per turn.

    Oat calls `init` once and `step` for every batch; the learner of rank 0 calls `evaluate`.
    """

    def __init__(self, ipc_server: Any, vllm_args: dict[str, Any], args: Args) -> None:
        args.rollout_options()  # imports the user's modules
        super().__init__(ipc_server, vllm_args, args)

    def init(self, actor_id: int, save_path: str) -> None:
        """Load the engine and create the objects that all episodes share.

        Raises:
            ConfigError: The tokenizer or its template cannot be used.
        """
        super().init(actor_id, save_path)
        args: Args = self.args
        self._player = EpisodePlayer(args.rollout_options(), self.tokenizer)
        self._check_bos()
        for params in (self.sampling_params, self.eval_sampling_params):
            for name, value in self._player.engine_options(params).items():
                setattr(params, name, value)
        self.eval_sampling_params.n = 1  # repeated samples are separate tasks
        self.eval_sampling_params.logprobs = 1
        self._choice = args.choose_estimator()
        self._max_total_tokens = args.max_model_len or self.llm.llm_engine.model_config.max_model_len
        self._loop = EpisodeLoop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gem-oat-engine")
        self._waiting: list[TaskRow] = []
        self._name = f"{args.group_rank}-{actor_id}"
        done, number = progress_of(args), args.group_rank * (args.actors // args.num_groups) + actor_id
        self._steps, self._started = done.steps, done.tasks[number]

    def _check_bos(self) -> None:
        """Check that prompts begin with the BOS token, which Oat asserts only after the first batch.

        With `raw`, the environment's wrapper writes that token.
        """
        bos, context = self.tokenizer.bos_token_id, self._player.context
        if not self._player.options.raw and self.tokenizer.bos_token and bos not in context.first("text"):
            raise ConfigError(
                f"the prompts have no {self.tokenizer.bos_token}, which Oat expects in each; use a chat "
                "template that writes it, or a tokenizer without bos_token"
            )

    def step(
        self,
        prompts: Sequence[str],
        formatted_prompts: Sequence[str],
        references: Sequence[str] | None = None,
    ) -> bytes:
        """Collect as many turns as there are prompts.

        Args:
            prompts: Tasks as JSON. Tasks that this step does not need are played in later steps.
            formatted_prompts: Ignored.
            references: Ignored.

        Returns:
            Oat's handle to a list of `TurnRow`, one per prompt; with a critic, to one list for each trainable
            episode, with all its turns.

        Raises:
            EnvError: See `collect`.
        """
        assert not self.eval_mode  # as in Oat's actor
        start = time.perf_counter()
        args: Args = self.args
        self._steps += 1
        policy = self._policy(self.sampling_params)
        self._waiting += map(json.loads, prompts)
        self._started += len(self._waiting)

        async def play(task: TaskRow, sample: int) -> Episode:
            return await self._play(task, sample, policy, "train", args.generate_max_length)

        episodes = self._loop.run(
            collect(self._waiting, play, turns=len(prompts), at_once=args.num_env, group_size=args.group_size)
        )
        self._started -= len(self._waiting)
        if not all(episode.trainable for episode in episodes):
            logger.warning("step %d: %s", self._steps, describe_failures(episodes))
        values, stats = turn_values(episodes, self._choice)
        info = {
            "actor/generate_time": policy.seconds,
            "actor/other_time": time.perf_counter() - start - policy.seconds,
            "actor/collected_turns": float(stats.count),
            "actor/started_tasks": float(self._started),
        }
        rows: Any = pack_turns(episodes, values, stats, mask_cut=args.ignore_no_eos, info=info)
        if "values" not in self._choice.needs:
            rows = draw_turns(rows, len(prompts), derive_rng(args.seed, self._name, self._steps, sep="/"))
        return bytes(self.ipc_client.serialize_ipc(rows))

    def evaluate(self, tasks: Sequence[str]) -> bytes:
        """Play all evaluation tasks with the sampling options of Oat's ``--eval-*`` flags.

        Args:
            tasks: Tasks as JSON.

        Returns:
            Oat's handle to the list of episodes, in the order of the tasks.
        """
        assert self.eval_mode  # as in Oat's actor
        policy = self._policy(self.eval_sampling_params)

        async def play(number: int, task: str) -> Episode:
            tokens = self.args.eval_generate_max_length
            return await self._play(json.loads(task), number, policy, "eval", tokens)

        at_once = max(self.args.num_env, self.args.eval_batch_size)
        episodes = self._loop.run(play_tasks(tasks, play, at_once=at_once))
        return bytes(self.ipc_client.serialize_ipc(episodes))

    async def _play(
        self, task: TaskRow, sample: int, policy: BatchedPolicy, split: str, max_tokens: int
    ) -> Episode:
        return await self._player.play(
            task,
            policy,
            split=split,
            metadata={"step": self._steps, "actor": self._name, "group": task["index"], "sample": sample},
            max_tokens_per_turn=max_tokens,
            max_total_tokens=self._max_total_tokens,
            log_errors=False,  # `step` logs one line for all episodes, and evaluation counts them
        )

    def _policy(self, sampling_params: Any) -> BatchedPolicy:
        def sample(prompts: list[list[int]], max_tokens: list[int]) -> list[Generation]:
            params = []
            for limit in max_tokens:
                params.append(sampling_params.clone())
                params[-1].max_tokens = limit
            stops = sampling_params.stop_token_ids
            return [vllm_generation(output, stops) for output in self.generate(prompts, params)]

        return BatchedPolicy(sample, self._thread)
