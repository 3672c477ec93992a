"""`rollout`: a `rollout_func` for TRL that plays episodes of GEM's environments."""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from accelerate.utils import gather_object
from trl import GRPOTrainer

from gem_chat import EpisodePlayer
from gem_chat._concurrency import EpisodeLoop, play_tasks
from gem_core.errors import ConfigError
from gem_core.rollout import Episode, Policy, Row, Turn
from gem_core.rollout._rows import masked_row
from gem_core.tasks import TaskRow
from gem_core.trainers._tasks import check_tasks
from gem_lab._engines.loading import context_limit
from gem_trl import _upstream
from gem_trl._config import GemConfig
from gem_trl._dataset import NO_IMAGES, is_task, prompt_task
from gem_trl._policies import open_policy

_upstream.check()


def rollout(gem: GemConfig | None = None) -> Rollout:
    """Return a ``rollout_func`` for TRL's own `GRPOTrainer`, with TRL's own advantages.

        GRPOTrainer(model, rollout_func=rollout(GemConfig()), reward_funcs=episode_return, ...)

    Args:
        gem: Options of the rollout; the options of the estimator are ignored. None uses the defaults.

    Raises:
        GemError: An option is not supported.
    """
    options = GemConfig.given(gem).checked()
    return Rollout(options.one_row("TRL's own advantages take each row for an episode"))


class Rollout:
    """Plays one episode per prompt with the model that is trained.

    Args:
        gem: Checked options.
        own_rows: Whether a prompt that is not a task is answered in an episode of one turn; otherwise it is
            an error.

        several_rows: Whether the trainer takes several rows per episode.

    Attributes:
        tasks: Tasks of the last call, in the order of the prompts; None for other prompts.
        episodes: Their episodes. The reward of an answer is 0, because only reward functions know it.
        rows: The rows of the last call, each with the index of its episode; -1 for one that fills up.
    """

    def __init__(self, gem: GemConfig, *, own_rows: bool = False, several_rows: bool = False) -> None:
        self._gem = gem
        self._own_rows = own_rows
        self._several_rows = several_rows
        self._loop = EpisodeLoop()  # one for all calls, because environments are reused
        weakref.finalize(self, self._loop.close)
        self._player: EpisodePlayer | None = None
        self._step = -1
        self._calls: Counter[str] = Counter()
        self.tasks: list[TaskRow | None] = []
        self.episodes: list[Episode] = []
        self.rows: list[tuple[int, Row]] = []

    def __call__(self, prompts: list[Any], trainer: GRPOTrainer) -> dict[str, list[Any]]:
        """Play the tasks in the prompts; return the columns that TRL expects, and ``gem_return`` per prompt.

        An episode that is not trainable becomes a row that is masked out, because TRL needs tokens in every
        row; its ``gem_return`` is None.

        Raises:
            ConfigError: A prompt is not a task, its item is for evaluation only, though the trainer trains on
                it, or the trainer is not a `GRPOTrainer`.
            GemError: An environment of the training data cannot be built.
        """
        if not isinstance(trainer, GRPOTrainer):
            raise ConfigError(f"gem_trl.rollout: {type(trainer).__name__} is not a GRPOTrainer")
        self.tasks = [
            None if self._own_rows and not is_task(prompt) else prompt_task(prompt) for prompt in prompts
        ]
        split = "train" if trainer.model.training else "eval"
        if split == "train":  # the rows of a stream have not been checked before
            rows = (("a row of the training data", task) for task in self.tasks if task is not None)
            check_tasks(rows, self._gem.wrappers, no_images=NO_IMAGES, for_training=True)
        own = [prompt for prompt, task in zip(prompts, self.tasks, strict=True) if task is None]
        own_ids = iter(trainer._tokenize_prompts(own)[0] if own else ())
        prompt_ids = [next(own_ids) if task is None else [] for task in self.tasks]
        tokenizer, step = trainer._tokenizer, int(trainer.state.global_step)
        if self._player is None:
            kwargs = trainer.args.chat_template_kwargs
            self._player = EpisodePlayer(self._gem, tokenizer, template_kwargs=kwargs)
        if step != self._step:  # the names of requests must not depend on when a run was resumed
            self._step, self._calls = step, Counter()
        self._calls[split] += 1
        name = f"{split}/{step}/{self._calls[split]}/{trainer.accelerator.process_index}"
        with open_policy(trainer, self._player, name) as policy:
            self.episodes = self._loop.run(self._play(policy, trainer, split, name, prompt_ids))
        self.rows = self._lay_out(trainer, tokenizer.pad_token_id)
        found = columns([row for _, row in self.rows])
        found["gem_return"] = [one.total_reward if one.trainable else None for one in self.episodes]
        for number, task in enumerate(self.tasks):
            if task is None:
                found["gem_return"][number] = None
        return found

    def _lay_out(self, trainer: GRPOTrainer, pad_id: int) -> list[tuple[int, Row]]:
        """Return the rows of the episodes, and masked ones that fill up the batch.

        TRL cuts a rollout into equal parts and drops the rest, and it gathers the lengths of all rows, so
        each rank needs the same multiple of the number of parts.
        """
        if not self._several_rows:
            return [(index, episode.only_row(pad_id)) for index, episode in enumerate(self.episodes)]
        rows = [(n, row) for n, episode in enumerate(self.episodes) for row in episode.rows(pad_id=pad_id)]
        parts = trainer.args.steps_per_generation if trainer.model.training else 1
        most = max(gather_object([len(rows)]))
        if most > len(self.episodes):
            most = -(-most // parts) * parts
        return rows + [(-1, masked_row(pad_id))] * (most - len(rows))

    async def _play(
        self, policy: Policy, trainer: GRPOTrainer, split: str, name: str, prompt_ids: Sequence[list[int]]
    ) -> list[Episode]:
        assert self._player is not None
        total = context_limit(trainer.model, self._gem.max_total_tokens)
        if trainer.use_vllm and trainer.args.vllm_max_model_length is not None:
            total = min(total or math.inf, trainer.args.vllm_max_model_length)
        limits = {"max_total_tokens": total, "max_response_tokens": trainer.max_completion_length}
        options: Any = {"policy": policy, "split": split, "metadata": {"step": self._step}, **limits}
        play: Callable[..., Awaitable[Episode]] = partial(self._player.play, **options)

        def one(number: int, task: TaskRow | None) -> Awaitable[Episode]:
            request = f"{name}/{number}"
            if task is not None:
                return play(task, request_id=request)
            ids = prompt_ids[number]
            room = trainer.max_completion_length
            return answer(policy, ids, room if total is None else min(room, total - len(ids)), request)

        return await play_tasks(self.tasks, one, at_once=len(self.tasks))


async def answer(policy: Policy, prompt_ids: list[int], max_tokens: float, request_id: str) -> Episode:
    """Return the answer to a prompt as an episode of one turn, with a reward of 0.

    Args:
        policy: Policy that samples the answer.
        prompt_ids: Tokens of the prompt.
        max_tokens: Maximum number of tokens of the answer; below 1, the episode is not trainable.
        request_id: Name of the request.
    """
    if max_tokens < 1:
        error = f"a prompt of {len(prompt_ids)} tokens leaves no room for an answer"
        return Episode("", None, [], False, True, "token_budget", error=error, trainable=False)
    made = await policy.generate(prompt_ids, max_tokens=int(max_tokens), request_id=request_id)
    if not made.token_ids:
        return Episode("", None, [], False, True, "empty_response", error="no answer", trainable=False)
    turn = Turn(prompt_ids, made.token_ids, made.logprobs, 0.0, "", "", made.finish_reason)
    cut = made.finish_reason == "length"
    return Episode("", None, [turn], not cut, cut, "truncated" if cut else "terminated")


def columns(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """Return the columns of a rollout function that have one entry per row."""
    return {
        "prompt_ids": [row.prompt_ids for row in rows],
        "completion_ids": [row.response_ids for row in rows],
        "logprobs": [row.logprobs_or_zeros()[row.prompt_length :] for row in rows],
        "env_mask": [row.response_mask[row.prompt_length :] for row in rows],
    }
