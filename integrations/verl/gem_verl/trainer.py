"""``trainer.v1.trainer_mode=gem_sync``: verl's synchronous trainer with knowledge of episodes.

It checks the config before any model is loaded, passes turn ids to the estimator, and logs the common metrics
of gem_core. Turn rows require it: it knows which rows make up an episode, and makes as many updates per step
as with episode rows. It keeps the rows that verl adds to fill a batch, for example to replace failed
episodes, out of the estimator and out of the means over rows.
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
from gem_core.rollout import Episode, nothing_trainable
from gem_core.rollout.rows import turn_ids_of
from gem_core.trainers.failures import batch_metrics
from gem_core.trainers.interface import expect
from gem_verl import SUPPORTED, estimators, failures, manager  # noqa: F401  checks the interface early
from gem_verl.dataset import GemDataset
from gem_verl.options import TRAINER_MODE, check_config, check_rewards, images_unsupported
from gem_verl.rows import ROW_COLUMNS, check_rows, verl_row

SUPPORTED.require()
for _name, _parameters in (
    ("_init_dataloader", ()),
    ("_build_replay_buffer", ()),
    ("_balance_batch", ("batch", "metrics")),
    ("_step_once", ("metrics", "timing_raw", "sample_batch_size")),
    ("_compute_advantage", ("batch", "metrics")),
    ("_update_critic", ("batch", "metrics")),
    ("_update_actor", ("batch", "metrics")),
    ("_compute_metrics", ("batch", "metrics")),
    ("_val_metrics_update", ("data_sources", "sample_uids", "reward_extra_infos_dict", "sample_turns")),
):
    expect(SUPPORTED, PPOTrainerSync, _name, "self", *_parameters, exact=False)


@register_trainer(TRAINER_MODE)
class GemTrainerSync(PPOTrainerSync):  # type: ignore[misc]
    """verl's `PPOTrainerSync` for episodes of several turns; see the docstring of this module."""

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
        self.trainer_mode = "sync"  # verl distinguishes its own modes by this name
        return super()._build_replay_buffer()

    def _balance_batch(self, batch: Any, metrics: dict[str, Any], **options: Any) -> Any:
        if self.gem_options.row_kind == "turn":
            # verl counts mini-batches in rows. This makes as many updates per step as episode rows would:
            per_prompt = self.config.actor_rollout_ref.rollout.n
            unit = math.lcm(per_prompt, *self._micro_batches()) * self._data_parallel_size()
            mini = math.ceil(len(batch.keys) / max(self._updates, 1) / unit) * unit
            with open_dict(self.config):
                self.config.actor_rollout_ref.actor.ppo_mini_batch_size = mini // per_prompt
        return super()._balance_batch(batch, metrics, **options)

    def _micro_batches(self) -> list[int]:
        """Return the micro-batch sizes of verl's workers, in rows per rank; dynamic sizes take any number."""
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
        metrics.update(batch_metrics(self._episodes, facts.stats))
        return KVBatchMeta(batch.keys, batch.tags, batch.partition_id, computed.fields, computed.extra_info)

    def _update_critic(self, batch: Any, metrics: dict[str, Any]) -> Any:
        with _rows_counted(self.critic_wg, "train_mini_batch"):
            return super()._update_critic(batch, metrics)

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        with _rows_counted(self.actor_rollout_wg, "update_actor"):
            return super()._update_actor(batch, metrics)

    def _compute_metrics(self, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        super()._compute_metrics(batch, metrics, *args, **kwargs)
        if self.gem_options.row_kind == "episode" or not self._episodes:
            return
        # verl counted each row as an episode.
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
        infos = {**infos, "reward": rewards}  # verl's means skip None
        return super()._val_metrics_update(data_sources, sample_uids, infos, turns, **options)


_NO_ROWS = "no materializable trajectories"
"""Part of verl's error message if no prompt of a batch has a row."""


def _split(batch: Any) -> tuple[list[str], list[str]]:
    """Return the keys of the rows that were played, and of the rows that fill the batch up."""
    keys: tuple[list[str], list[str]] = ([], [])
    for key, tag in zip(batch.keys, batch.tags, strict=True):
        keys[bool(tag.get("is_padding"))].append(key)
    return keys


def _fill(pads: list[str], computed: Any) -> None:
    """Store zeros in the rows that fill a batch up, for the fields that `computed` has."""
    partition = computed.partition_id
    table = tq.kv_batch_get(keys=pads, partition_id=partition, select_fields=["response_mask"])
    mask = table["response_mask"]
    zeros = [torch.zeros(length) for length in mask.offsets().diff().tolist()]
    fields = {
        name: torch.nested.as_nested_tensor(zeros, layout=torch.jagged)
        for name in ("advantages", "returns", "token_level_rewards", "rollout_is_weights")
        if name in computed.fields
    }
    tq.kv_batch_put(keys=pads, partition_id=partition, fields=TensorDict(fields, batch_size=len(pads)))


@contextmanager
def _rows_counted(workers: Any, method: str) -> Iterator[None]:
    """Make a loss that is a mean over rows divide by the number of played rows, not by the batch size."""
    update = getattr(workers, method)

    def counted(batch: Any) -> Any:
        keys, pads = _split(batch)
        if pads:  # with several updates, each divides by their mean number of rows
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
    """Return facts about the rows of a batch for the estimator, and the outlines of their episodes.

    Args:
        rows: ``extra_fields["gem"]`` of the agent loop; None for pads and other agent loops.
        keys: verl's keys, ``{uid}_{session}_{index}``.
        response_mask: Mask of shape (rows, tokens).
    """
    episodes: dict[str, Episode] = {}
    numbers: dict[str, int] = {}
    for key, row in zip(keys, rows, strict=True):
        session = key.rsplit("_", 1)[0]
        numbers.setdefault(session, len(numbers))
        if row is not None and session not in episodes:
            episodes[session] = Episode.from_dict(row["episode"])
    if any(row is not None and row["rows"] == "turn" for row in rows):
        facts = estimators.BatchFacts(
            episodes=[numbers[key.rsplit("_", 1)[0]] for key in keys],
            turns=[int(key.rsplit("_", 1)[1]) for key in keys],
        )
    else:
        turn_ids = turn_ids_from_mask(response_mask)
        for number, row in enumerate(rows):
            if row is not None:
                ids = turn_ids_of(row["spans"], turn_ids.shape[1], start=row["prompt_length"])
                turn_ids[number] = torch.tensor(ids)
        facts = estimators.BatchFacts(turn_ids=turn_ids)
    return facts, list(episodes.values())


def _rows_of(dataset: Any) -> Iterable[Mapping[str, Any]]:
    """Return the rows of a data set for `check_rows`; empty for a class that is neither ours nor verl's."""
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
    """Return the value inside verl's wrapper of a non-tensor value."""
    return dict(getattr(extra, "data", extra) or {})
