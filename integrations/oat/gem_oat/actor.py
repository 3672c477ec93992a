"""`Actor`: Oat's actor, playing environments instead of asking a reward oracle."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

from oat.algorithms.ppo import PPOActor

from gem_core.errors import ConfigError
from gem_core.eval.play import play_tasks
from gem_core.rollout import EnvPool, Episode, Generation, describe_failures, extra_stop_id
from gem_core.rollout.engine import vllm_generation
from gem_core.tasks import TaskRow
from gem_oat import upstream
from gem_oat.args import Args, import_modules
from gem_oat.collect import collect
from gem_oat.policy import BatchedPolicy
from gem_oat.rows import lay_out, turn_values

upstream.check()
logger = logging.getLogger(__name__)


class Actor(PPOActor):  # type: ignore[misc]
    """Plays tasks with Oat's engine; one row per turn.

    Oat calls `init` once and `step` for every batch; the learner of rank 0 calls `evaluate`.
    """

    def __init__(self, ipc_server: Any, vllm_args: dict[str, Any], args: Args) -> None:
        import_modules(args)
        super().__init__(ipc_server, vllm_args, args)

    def init(self, actor_id: int, save_path: str) -> None:
        """Load the engine and build what episodes share.

        Raises:
            ConfigError: The tokenizer or its template cannot be used.
        """
        super().init(actor_id, save_path)
        args: Args = self.args
        self._options = args.rollout_options()
        self._context = self._options.make_context(self.tokenizer, args.template_kwargs())
        self._check_bos()
        end = extra_stop_id(self._context, self.tokenizer)
        if end is not None:
            self.sampling_params.stop_token_ids = [end]
            self.eval_sampling_params.stop_token_ids = [end]
        self.eval_sampling_params.n = 1  # repeated samples are tasks of their own
        self.eval_sampling_params.logprobs = 1
        self._estimator, self._estimator_options = args.estimator_options()
        self._max_total_tokens = args.max_model_len or self.llm.llm_engine.model_config.max_model_len
        self._envs = EnvPool(self._options.wrappers)
        self._loop = asyncio.new_event_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gem-oat-engine")
        self._traces = self._options.trace_writers(self.tokenizer)
        self._steps = 0
        self._waiting: list[TaskRow] = []
        self._name = f"{args.group_rank}-{actor_id}"

    def _check_bos(self) -> None:
        """Oat asserts, after the first batch, that the engine put this token before the prompt.

        With `raw` it is the environment's wrapper that writes it.
        """
        bos = self.tokenizer.bos_token_id
        if not self._options.raw and self.tokenizer.bos_token and bos not in self._context.first("text"):
            raise ConfigError(
                f"the prompts have no {self.tokenizer.bos_token}, which Oat wants in each; use a chat "
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
            prompts: Tasks as JSON. Those that it does not take are played in the next steps.
            formatted_prompts: Not used.
            references: Not used.

        Returns:
            Oat's handle to a list of `Row`, one per prompt.

        Raises:
            EnvError: As `collect`.
        """
        start = time.perf_counter()
        args: Args = self.args
        self._steps += 1
        policy = self._policy(self.sampling_params)
        self._waiting += map(json.loads, prompts)

        async def play(task: TaskRow, sample: int) -> Episode:
            return await self._play(task, sample, policy, "train", args.generate_max_length)

        episodes = self._loop.run_until_complete(
            collect(self._waiting, play, turns=len(prompts), at_once=args.num_env, group_size=args.group_size)
        )
        if not all(episode.trainable for episode in episodes):
            logger.warning("step %d: %s", self._steps, describe_failures(episodes))
        values, stats = turn_values(episodes, self._estimator, args.gamma, self._estimator_options)
        spent = time.perf_counter() - start
        rows = lay_out(
            episodes,
            values,
            stats,
            wanted=len(prompts),
            random=Random(f"{args.seed}/{self._name}/{self._steps}"),
            mask_cut=args.ignore_no_eos,
            info={
                "actor/generate_time": policy.seconds,
                "actor/other_time": spent - policy.seconds,
                "actor/collected_turns": float(stats.count),
            },
        )
        return bytes(self.ipc_client.serialize_ipc(rows))

    def evaluate(self, tasks: Sequence[str]) -> bytes:
        """Play evaluation tasks, all of them, with the sampling of Oat's ``--eval-*`` flags.

        Args:
            tasks: As JSON.

        Returns:
            Oat's handle to the list of episodes, in the order of the tasks.
        """
        policy = self._policy(self.eval_sampling_params)

        async def one(number: int, task: str) -> Episode:
            tokens = self.args.eval_generate_max_length
            return await self._play(json.loads(task), number, policy, "eval", tokens)

        at_once = max(self.args.num_env, self.args.eval_batch_size)
        episodes = self._loop.run_until_complete(play_tasks(tasks, one, at_once=at_once))
        return bytes(self.ipc_client.serialize_ipc(episodes))

    async def _play(
        self, task: TaskRow, sample: int, policy: BatchedPolicy, split: str, max_tokens: int
    ) -> Episode:
        episode = await self._envs.play(
            task,
            policy,
            self._context,
            max_tokens_per_turn=max_tokens,
            max_total_tokens=self._max_total_tokens,
            **self._options.play_kwargs(),
            metadata={
                "step": self._steps,
                "actor": self._name,
                "group": task["index"],
                "sample": sample,
                "split": split,
            },
            log_errors=False,  # `step` has one line for all, and evaluation counts them
        )
        if self._traces:
            self._traces[split].write(episode)
        return episode

    def _policy(self, sampling_params: Any) -> BatchedPolicy:
        def sample(prompts: list[list[int]], max_tokens: list[int]) -> list[Generation]:
            params = []
            for most in max_tokens:
                params.append(sampling_params.clone())
                params[-1].max_tokens = most
            return [vllm_generation(output) for output in self.generate(prompts, params)]

        return BatchedPolicy(sample, self._thread)
