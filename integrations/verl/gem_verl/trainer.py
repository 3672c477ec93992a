"""``trainer.v1.trainer_mode=gem_sync``: verl's synchronous trainer, told what an episode is.

It checks the config before any model is loaded, hands turn ids to the estimator and logs the metrics
that every trainer of gem_core logs. Rows of single turns need it: it knows which rows make up an episode,
and makes as many updates per step as with one row per episode. It keeps the rows that verl adds to fill a
batch, in place of failed episodes for example, out of the estimator and of the means over rows.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from omegaconf import open_dict
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from gem_core.advantages.tensors import turn_ids_from_mask
from gem_core.rollout import Episode, episode_metrics, nothing_trainable
from gem_verl import estimators, failures
from gem_verl.dataset import GemDataset
from gem_verl.loop import turn_ids_of
from gem_verl.options import TRAINER_MODE, check_config, check_rewards, images_unsupported
from gem_verl.rows import ROW_COLUMNS, check_rows, verl_row


@register_trainer(TRAINER_MODE)
class GemTrainerSync(PPOTrainerSync):  # type: ignore[misc]
    """See the module."""

    def __init__(self, config: Any) -> None:
        self.gem_options = check_config(config, trainer_mode=TRAINER_MODE)
        self._episodes: list[Episode] = []
        super().__init__(config)
        actor = config.actor_rollout_ref.actor
        self._updates = config.data.train_batch_size / actor.ppo_mini_batch_size

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        default = self.config.actor_rollout_ref.rollout.agent.default_agent_loop
        refused = functools.partial(images_unsupported, self.config)
        for dataset in (self.train_dataset, self.val_dataset):
            training = dataset is self.train_dataset
            wrappers = self.gem_options.wrappers
            if check_rows(_rows_of(dataset), wrappers, default, refused, for_training=training):
                check_rewards(self.config)

    def _build_replay_buffer(self) -> Any:
        self.trainer_mode = "sync"  # verl asks for this name to tell its own modes apart
        return super()._build_replay_buffer()

    def _balance_batch(self, batch: Any, metrics: dict[str, Any], **options: Any) -> Any:
        if self.gem_options.row_per_turn:
            # verl counts mini-batches in rows. As many updates a step as episodes would make:
            per_prompt = self.config.actor_rollout_ref.rollout.n
            unit = math.lcm(per_prompt, *self._micro_batches()) * self._data_parallel_size()
            mini = math.ceil(len(batch.keys) / max(self._updates, 1) / unit) * unit
            with open_dict(self.config):
                self.config.actor_rollout_ref.actor.ppo_mini_batch_size = mini // per_prompt
        return super()._balance_batch(batch, metrics, **options)

    def _micro_batches(self) -> list[int]:
        """Numbers of rows per rank that verl cuts a batch into; with dynamic sizes it takes any number."""
        parts = self.config.actor_rollout_ref
        sizes = []
        if not parts.actor.use_dynamic_bsz:
            sizes.append(parts.actor.ppo_micro_batch_size_per_gpu)
        if not parts.rollout.log_prob_use_dynamic_bsz:
            sizes.append(parts.rollout.log_prob_micro_batch_size_per_gpu)
        if self.use_reference_policy and not parts.ref.log_prob_use_dynamic_bsz:
            sizes.append(parts.ref.log_prob_micro_batch_size_per_gpu)
        return [size for size in sizes if size]

    def _data_parallel_size(self) -> int:
        workers = self.actor_rollout_wg
        if "actor" not in workers._dispatch_info:
            workers._dispatch_info["actor"] = workers._query_dispatch_info("actor")
        return int(max(workers._dispatch_info["actor"])) + 1

    def _step_once(self, metrics: dict[str, Any], timing_raw: dict[str, Any], sample_batch_size: int) -> Any:
        try:
            return super()._step_once(metrics, timing_raw, sample_batch_size)
        except RuntimeError as error:
            failed = failures.take_failed() if _NO_ROWS in str(error) else []
            if failed:
                raise nothing_trainable(failed, f"step {self.global_steps}") from error
            raise

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        keys, pads = _split(batch)
        data = tq.kv_batch_get(
            keys=keys, partition_id=batch.partition_id, select_fields=["extra_fields", "response_mask"]
        )
        rows = [_plain(extra).get("gem") for extra in data["extra_fields"]]
        facts, episodes = batch_facts(rows, keys, data["response_mask"].to_padded_tensor(0))
        self._episodes = episodes + failures.take_failed()
        with estimators.known(facts):
            computed = super()._compute_advantage(batch.select_keys(keys), metrics)
        if pads:
            _fill(pads, computed)
        metrics.update(episode_metrics(self._episodes))
        if facts.stats.count:
            metrics.update(facts.stats.metrics())
        return KVBatchMeta(batch.keys, batch.tags, batch.partition_id, computed.fields, computed.extra_info)

    def _update_critic(self, batch: Any, metrics: dict[str, Any]) -> Any:
        with _rows_counted(self.critic_wg, "train_mini_batch"):
            return super()._update_critic(batch, metrics)

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        with _rows_counted(self.actor_rollout_wg, "update_actor"):
            return super()._update_actor(batch, metrics)

    def _compute_metrics(self, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        super()._compute_metrics(batch, metrics, *args, **kwargs)
        if not self.gem_options.row_per_turn or not self._episodes:
            return
        # verl took each row for an episode.
        trained = [episode for episode in self._episodes if episode.trainable]
        for name, values in (
            ("critic/score", [episode.total_reward for episode in trained]),
            ("training/num_turns", [2 * len(episode.turns) for episode in trained]),
        ):
            for statistic in ("mean", "max", "min"):
                if values:
                    metrics[f"{name}/{statistic}"] = float(getattr(np, statistic)(values))

    def _val_metrics_update(
        self, data_sources: Any, sample_uids: Any, infos: Any, sample_turns: Any, **options: Any
    ) -> Any:
        failed = [rate == 1.0 for rate in infos.get("gem/error_rate", [])] or [False] * len(sample_turns)
        rewards = [None if fails else reward for reward, fails in zip(infos["reward"], failed, strict=True)]
        turns = [count for count, fails in zip(sample_turns, failed, strict=True) if not fails]
        infos = {**infos, "reward": rewards}  # None is in no mean of verl's
        return super()._val_metrics_update(data_sources, sample_uids, infos, turns, **options)


_NO_ROWS = "no materializable trajectories"
"""What verl says when no prompt of a batch has a row."""


def _split(batch: Any) -> tuple[list[str], list[str]]:
    """Keys of a batch: those of rows that were played, and those of rows that fill it up."""
    keys: tuple[list[str], list[str]] = ([], [])
    for key, tag in zip(batch.keys, batch.tags, strict=True):
        keys[bool(tag.get("is_padding"))].append(key)
    return keys


def _fill(pads: list[str], computed: Any) -> None:
    """Give rows that fill a batch up zeros where `computed` was given advantages and the like."""
    place = computed.partition_id
    mask = tq.kv_batch_get(keys=pads, partition_id=place, select_fields=["response_mask"])["response_mask"]
    zeros = [torch.zeros(length) for length in mask.offsets().diff().tolist()]
    fields = {
        name: torch.nested.as_nested_tensor(zeros, layout=torch.jagged)
        for name in ("advantages", "returns", "token_level_rewards", "rollout_is_weights")
        if name in computed.fields
    }
    tq.kv_batch_put(keys=pads, partition_id=place, fields=TensorDict(fields, batch_size=len(pads)))


@contextmanager
def _rows_counted(workers: Any, method: str) -> Iterator[None]:
    """Let a loss that is a mean over rows divide by those that were played, not by the size of the batch."""
    update = getattr(workers, method)

    def counted(batch: Any) -> Any:
        keys, pads = _split(batch)
        if pads:  # a step of several updates divides by their mean
            batch.extra_info["global_batch_size"] *= len(keys) / len(batch)
        return update(batch)

    setattr(workers, method, counted)
    try:
        yield
    finally:
        setattr(workers, method, update)


def batch_facts(
    rows: list[dict[str, Any] | None], keys: list[str], response_mask: torch.Tensor
) -> tuple[estimators.BatchFacts, list[Episode]]:
    """What the rows of a batch say about themselves.

    Args:
        rows: What the agent loop left in ``extra_fields["gem"]``; None for pads and other loops.
        keys: verl's keys, ``{uid}_{session}_{index}``.
        response_mask: (rows, tokens).

    Returns:
        Facts for the estimator, and the outlines of the episodes.
    """
    episodes: dict[str, Episode] = {}
    numbers: dict[str, int] = {}
    for key, row in zip(keys, rows, strict=True):
        session = key.rsplit("_", 1)[0]
        numbers.setdefault(session, len(numbers))
        if row is not None and session not in episodes:
            episodes[session] = Episode.from_dict(row["episode"])
    if any(row is not None and row["row_per_turn"] for row in rows):
        facts = estimators.BatchFacts(
            episodes=[numbers[key.rsplit("_", 1)[0]] for key in keys],
            turns=[int(key.rsplit("_", 1)[1]) for key in keys],
        )
    else:
        turn_ids = turn_ids_from_mask(response_mask)
        for number, row in enumerate(rows):
            if row is not None:
                turn_ids[number] = torch.tensor(turn_ids_of(row["spans"], turn_ids.shape[1]))
        facts = estimators.BatchFacts(turn_ids=turn_ids)
    return facts, list(episodes.values())


def _rows_of(dataset: Any) -> Iterable[Mapping[str, Any]]:
    """For `check_rows`; nothing of a data set that is neither ours nor verl's."""
    if isinstance(dataset, GemDataset):
        return map(verl_row, dataset.tasks)
    if not hasattr(dataset, "dataframe"):
        return []
    table = dataset.dataframe
    rows: Iterable[Mapping[str, Any]] = table.select_columns(
        [name for name in ROW_COLUMNS if name in table.column_names]
    )
    return rows


def _plain(extra: Any) -> dict[str, Any]:
    """A non-tensor value as it went in."""
    return dict(getattr(extra, "data", extra) or {})
