"""`rollout`: a `rollout_func` for TRL that plays episodes of GEM's environments."""

from __future__ import annotations

import asyncio
import math
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from trl import GRPOTrainer

from gem_core.engines.loading import context_limit
from gem_core.errors import ConfigError
from gem_core.rollout import Episode, Policy, rows_of
from gem_core.rollout.concurrency import play_tasks
from gem_core.tasks import TaskRow
from gem_core.trainers.player import EpisodePlayer
from gem_trl import upstream
from gem_trl.config import GemConfig
from gem_trl.dataset import prompt_task
from gem_trl.policies import open_policy

upstream.check()


def rollout(gem: GemConfig | None = None) -> Rollout:
    """Return a ``rollout_func`` for TRL's own `GRPOTrainer`, with TRL's own advantages.

        GRPOTrainer(model, rollout_func=rollout(GemConfig()), reward_funcs=episode_return, ...)

    Args:
        gem: Options of the rollout; the options of the estimator are ignored. None uses the defaults.

    Raises:
        GemError: An option is not supported.
    """
    return Rollout((gem or GemConfig()).checked())


class Rollout:
    """Plays one episode per prompt with the model that is trained.

    Args:
        gem: Checked options.

    Attributes:
        tasks: Tasks of the last call, in the order of the prompts.
        episodes: Their episodes.
    """

    def __init__(self, gem: GemConfig) -> None:
        self._gem = gem
        self._loop = asyncio.new_event_loop()  # one for all calls, because environments are reused
        weakref.finalize(self, self._loop.close)
        self._player: EpisodePlayer | None = None
        self._step = -1
        self._calls: Counter[str] = Counter()
        self.tasks: list[TaskRow] = []
        self.episodes: list[Episode] = []

    def __call__(self, prompts: list[str], trainer: GRPOTrainer) -> dict[str, list[Any]]:
        """Play the tasks in the prompts; return the columns that TRL expects, and ``gem_return``.

        An episode that is not trainable becomes a row that is masked out, because TRL needs tokens in every
        row; its ``gem_return`` is None.

        Raises:
            ConfigError: A prompt is not a task, or the trainer is not a `GRPOTrainer`.
        """
        if not isinstance(trainer, GRPOTrainer):
            raise ConfigError(f"gem_trl.rollout: {type(trainer).__name__} is not a GRPOTrainer")
        self.tasks = [prompt_task(prompt) for prompt in prompts]
        tokenizer, step = trainer._tokenizer, int(trainer.state.global_step)
        if self._player is None:
            kwargs = trainer.args.chat_template_kwargs
            self._player = EpisodePlayer(self._gem, tokenizer, template_kwargs=kwargs)
        split = "train" if trainer.model.training else "eval"
        if step != self._step:  # the names of requests must not depend on when a run was resumed
            self._step, self._calls = step, Counter()
        self._calls[split] += 1
        name = f"{split}/{step}/{self._calls[split]}/{trainer.accelerator.process_index}"
        with open_policy(trainer, self._player, name) as policy:
            self.episodes = self._run(self._play(policy, trainer, split, name))
        return columns(self.episodes, tokenizer.pad_token_id)

    async def _play(self, policy: Policy, trainer: GRPOTrainer, split: str, name: str) -> list[Episode]:
        assert self._player is not None
        total = context_limit(trainer.model, self._gem.max_tokens)
        if trainer.use_vllm and trainer.args.vllm_max_model_length is not None:
            total = min(total or math.inf, trainer.args.vllm_max_model_length)
        limits = {"max_total_tokens": total, "max_response_tokens": trainer.max_completion_length}
        options: Any = {"policy": policy, "split": split, "metadata": {"step": self._step}, **limits}
        play: Callable[..., Awaitable[Episode]] = partial(self._player.play, **options)

        def one(number: int, task: TaskRow) -> Awaitable[Episode]:
            return play(task, request_id=f"{name}/{number}")

        return await play_tasks(self.tasks, one, at_once=len(self.tasks))

    def _run(self, play: Coroutine[Any, Any, list[Episode]]) -> list[Episode]:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._loop.run_until_complete(play)
        with ThreadPoolExecutor(1) as thread:  # in a notebook, a loop is running in this thread
            return thread.submit(self._loop.run_until_complete, play).result()


def columns(episodes: Sequence[Episode], pad_id: int) -> dict[str, list[Any]]:
    """Return the columns of a rollout function, with one row per episode."""
    rows = [rows_of(episode, pad_id=pad_id)[0] for episode in episodes]
    return {
        "prompt_ids": [row.prompt_ids for row in rows],
        "completion_ids": [row.response_ids for row in rows],
        "logprobs": [row.logprobs_or_zeros()[row.prompt_length :] for row in rows],
        "env_mask": [row.response_mask[row.prompt_length :] for row in rows],
        "gem_return": [episode.total_reward if episode.trainable else None for episode in episodes],
    }
