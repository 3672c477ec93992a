"""GEM's values of ``trainer.v1.trainer_mode``: verl's three trainers, made aware of episodes.

They check the config before any model is loaded, choose GEM's agent loop manager, and log the common metrics
of gem_core. Several rows per episode require one of them: they know which rows make up an episode, and make
as many updates per step as with one row per episode. They keep the rows that verl adds to fill a batch, for
example to replace failed episodes, out of the estimator and out of the means over rows.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from omegaconf import open_dict
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo import v1
from verl.trainer.ppo.v1 import trainer_base

from gem_chat._failures import nothing_trainable
from gem_core._core import Split
from gem_core.advantages import ReturnStats
from gem_core.errors import EnvError, UnsupportedTrainer
from gem_core.rollout import Episode
from gem_core.rollout._sources import SourceLedger
from gem_core.trainers import batch_metrics, unpack_facts
from gem_core.trainers._facts import unpack_outlines
from gem_core.trainers._imports import replaced
from gem_core.trainers._interface import expect_listed
from gem_core.trainers._weights import row_factors
from gem_verl import _SUPPORTED, _estimators, _failures, _manager  # checks the interface early
from gem_verl._dataset import explained
from gem_verl._losses import row_average
from gem_verl._options import TRAINER_MODES, check_chat, check_config, chosen_estimator
from gem_verl._plan import make_plan
from gem_verl._rows import AGENT_NAME
from gem_verl._sessions import copied_scores, index_of, join_sessions, session_of, unpack_played

logger = logging.getLogger("verl.gem")

expect_listed(_SUPPORTED, "trainer")
trainer_base.compute_advantage_for_multi_trajectories = join_sessions(
    trainer_base.compute_advantage_for_multi_trajectories
)

REPLACED_BATCHES = 4
"""Number of batches of prompts that may fail completely in a row, where verl replaces such prompts."""


class GemTrainer(v1.PPOTrainer):  # type: ignore[misc]
    """Mixin for verl's trainers; see the docstring of this module.

    Attributes:
        gem_options: The section ``gem`` of the config.
    """

    agent_loop_manager: Any = None

    def __init__(self, config: Any) -> None:
        _estimators.register()  # also those that a module has registered since
        self.gem_options = check_config(config)
        self._ledgers: dict[Split, SourceLedger] = {"train": SourceLedger(), "eval": SourceLedger()}
        self._reset_step()
        modes, agent = config.trainer.v1, config.actor_rollout_ref.rollout.agent
        with open_dict(config):
            modes[modes.trainer_mode] = modes[TRAINER_MODES[modes.trainer_mode]]
            if not agent.get("agent_loop_manager_class"):
                agent.agent_loop_manager_class = "gem_verl.GemAgentLoopManager"
        super().__init__(config)
        # Mini-batches in prompts, as in the config; verl multiplies them by rollout.n and cuts rows.
        self._mini_batches = [
            (section, int(section.ppo_mini_batch_size))
            for section in (config.actor_rollout_ref.actor, *[config.critic] * self.use_critic)
        ]

    def _reset_step(self) -> None:
        self._episodes: list[Episode] = []
        self._stats = ReturnStats()
        self._failed_prompts: set[str] = set()
        self._finished_prompts: set[str] = set()
        self._counts: Counter[str] = Counter()

    def _init_dataloader(self) -> None:
        with explained():
            super()._init_dataloader()
        plan = make_plan(self.config, self.train_dataset, self.val_dataset)
        if any(source.player == AGENT_NAME for source in plan.sources):
            check_chat(self.config, self.tokenizer, self.processor)
        for line in plan.lines():
            logger.info("plan: %s", line)

    def _build_replay_buffer(self) -> Any:
        # verl distinguishes its own modes by this name.
        self.trainer_mode = TRAINER_MODES[self.config.trainer.v1.trainer_mode]
        buffer = super()._build_replay_buffer()
        read = buffer._sync_metadata_from_transfer_queue

        def read_and_check() -> None:
            read()
            if hasattr(self.agent_loop_manager, "check_workers"):
                # verl would wait forever for the episodes of a dead worker, and replace or omit the episodes
                # of a dead engine. A failure may be visible here before its cause.
                self.agent_loop_manager.check_workers(timeout=float(any(buffer.failure_keys.values())))
            self._check_progress(buffer)

        buffer._sync_metadata_from_transfer_queue = read_and_check
        return buffer

    def _check_progress(self, buffer: Any) -> None:
        """Raise an error if prompts are replaced again and again because all of their episodes fail."""
        if finished := buffer.finished_keys["train"] - self._finished_prompts:
            self._finished_prompts |= finished
            self._failed_prompts.clear()
        self._failed_prompts |= buffer.failure_keys["train"]
        limit = REPLACED_BATCHES * self.config.data.train_batch_size
        if len(self._failed_prompts) >= limit and (lost := _failures.take_lost()):
            raise _nothing_left(lost, f"{len(self._failed_prompts)} prompts one after the other")

    def _balance_batch(self, batch: Any, metrics: dict[str, Any], **options: Any) -> Any:
        self._rows, self._sessions = len(batch.keys), len(set(map(session_of, batch.keys)))
        batch = super()._balance_batch(batch, metrics, **options)
        batch.reorder(_spread([bool(tag.get("is_padding")) for tag in batch.tags], self._ranks))
        return batch

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        self._ranks = dp_size
        per_prompt = self.config.actor_rollout_ref.rollout.n
        for section, own in self._mini_batches:
            size = own
            if self._rows > self._sessions:
                # verl counts mini-batches in rows. This makes as many updates as one row per episode would:
                prompts = self.config.data.train_batch_size / self.parameter_sync_step
                unit = math.lcm(per_prompt, *self._micro_batches()) * dp_size
                size = math.ceil(self._rows / max(prompts / own, 1) / unit) * unit // per_prompt
            with open_dict(section):
                section.ppo_mini_batch_size = size
        return int(super()._get_required_batch_multiple(dp_size))

    def _micro_batches(self) -> list[int]:
        """Return the micro-batch sizes of verl's workers in rows per rank; dynamic sizes fit any number."""
        parts = self.config.actor_rollout_ref
        actor, scored = parts.actor, (parts.rollout, parts.ref)[: 1 + self.use_reference_policy]
        sizes = [0 if actor.use_dynamic_bsz else actor.ppo_micro_batch_size_per_gpu]
        sizes += [0 if s.log_prob_use_dynamic_bsz else s.log_prob_micro_batch_size_per_gpu for s in scored]
        return [size for size in sizes if size]

    def _step_once(self, metrics: dict[str, Any], timing_raw: dict[str, Any], sample_batch_size: int) -> Any:
        try:
            return super()._step_once(metrics, timing_raw, sample_batch_size)
        except RuntimeError as error:
            if "no materializable trajectories" in str(error) and (lost := _failures.take_lost()):
                raise _nothing_left(lost, f"step {self.global_steps}") from error
            raise

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        keys, pads = _split(batch)
        lost = _failures.take_lost()
        self._episodes += [each.episode for each in lost if each.episode is not None]
        self._count_sources(batch, keys, lost, len(pads))
        rows = [_plain(extra).get("gem") for extra in _column(batch, keys, "extra_fields")]
        choice = chosen_estimator(self.config)
        needs = () if choice is None else choice.needs
        sessions, indices = [session_of(key) for key in keys], [index_of(key) for key in keys]
        facts = unpack_facts(
            rows, sessions, indices, lambda: _column(batch, keys, "response_mask").to_padded_tensor(0)
        )
        episodes = unpack_outlines(rows)
        facts.played = unpack_played(rows, sessions, episodes, needs)
        if choice is not None and facts.episodes is not None:
            copied = copied_scores(sessions, facts)
            if foreign := [keys[row] for row in copied if rows[row] is None]:
                _clear_rewards(batch, foreign)
        if "values" in needs:
            facts.values = _column(batch, keys, "values").to_padded_tensor(0)
        with replaced(_estimators, "batch_facts", facts):
            computed = super()._compute_advantage(batch.select_keys(keys), metrics)
        masked = choice is not None and choice.truncation == "mask"
        turns = sum(len(one.turns) for one in episodes if not (masked and one.truncated))
        if all(rows) and facts.stats.count not in (0, turns):
            raise UnsupportedTrainer(
                f"gem_verl: the response mask has {facts.stats.count} turns, but {turns} turns were "
                "played; an option of verl changes the mask"
            )
        if choice is not None and len(set(sessions)) < len(sessions):
            self._weigh_rows(computed, keys, sessions)
        if pads:
            _fill(pads, computed)
        self._episodes += episodes
        self._stats = self._stats.merge(facts.stats)
        return KVBatchMeta(batch.keys, batch.tags, batch.partition_id, computed.fields, computed.extra_info)

    def _weigh_rows(self, batch: Any, keys: list[str], sessions: list[str]) -> None:
        """Multiply the stored advantages so that a loss which averages over rows averages over episodes.

        Raises:
            ConfigError: The loss depends on the rows in another way; see `gem_verl._losses.row_average`.
        """
        average = row_average(self.config, ratios=self.gem_options.rows == "auto")
        if average == "tokens":
            return
        lengths = [int(mask.sum()) for mask in _column(batch, keys, "response_mask").unbind()]
        factors = row_factors(average, lengths, sessions)
        rows = zip(_column(batch, keys, "advantages").unbind(), factors, strict=True)
        scaled = torch.nested.as_nested_tensor([row * factor for row, factor in rows], layout=torch.jagged)
        fields = TensorDict({"advantages": scaled}, batch_size=len(keys))
        tq.kv_batch_put(keys=keys, partition_id=batch.partition_id, fields=fields)

    def _count_sources(self, batch: Any, keys: list[str], lost: list[_failures.Lost], filled: int) -> None:
        """Count the episodes of an update by source.

        Raises:
            EnvError: A source lost all of its episodes.
        """
        names = ["response_mask", "data_source"]
        data = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=names)
        sources = list(data["data_source"]) if "data_source" in data else [_failures.UNKNOWN] * len(keys)
        rows = zip(keys, data["response_mask"].unbind(), sources, strict=True)
        played = {session_of(key): _failures.source_of(source) for key, mask, source in rows if mask.any()}
        counts = self._ledgers["train"].close_step(
            f"step {self.global_steps}", played.values(), [(each.source, each.cause) for each in lost], filled
        )
        self._counts.update(counts)

    def _update_critic(self, batch: Any, metrics: dict[str, Any]) -> Any:
        with _rows_counted(self.critic_wg, "train_mini_batch"):
            return super()._update_critic(batch, metrics)

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        with _rows_counted(self.actor_rollout_wg, "update_actor"):
            return super()._update_actor(batch, metrics)

    def _compute_metrics(self, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        super()._compute_metrics(batch, metrics, *args, **kwargs)
        metrics.update(self.step_metrics(batch))

    def step_metrics(self, batch: Any) -> dict[str, float]:
        """Return the metrics of the step's episodes, and start the next step.

        If episodes have several rows, they replace means that verl computes over rows.
        """
        metrics = batch_metrics(self._episodes, self._stats) | self._counts
        self._reset_step()
        keys, _ = _split(batch)
        if len(set(map(session_of, keys))) < len(keys):
            names = ["rm_scores"] + ["token_level_rewards"] * bool(self.config.algorithm.use_kl_in_reward)
            scores = [[float(row.sum()) for row in _column(batch, keys, name).unbind()] for name in names]
            sums = {"critic/score": scores[0], "critic/rewards": scores[-1]}
            sums |= dict.fromkeys(("num_turns", "training/num_turns"), self._turns_of_rows(batch, keys))
            numbers = np.unique([session_of(key) for key in keys], return_inverse=True)[1]
            for name, row_sums in sums.items():
                totals = np.bincount(numbers, weights=row_sums)
                for statistic in ("mean", "max", "min"):
                    metrics[f"{name}/{statistic}"] = float(getattr(np, statistic)(totals))
        return metrics

    def _turns_of_rows(self, batch: Any, keys: list[str]) -> list[float]:
        """Return the part of each row in verl's number of turns, which counts prompts and responses."""
        facts = [_plain(extra).get("gem") for extra in _column(batch, keys, "extra_fields")]
        counts = _column(batch, keys, "num_turns")
        return [
            float(getattr(count, "data", count) if entry is None else 2 * len(entry["turns"]))
            for entry, count in zip(facts, counts, strict=True)
        ]

    def on_step_end(self) -> None:
        with _manager.deaths_explained():  # the servers get the new weights, and one may have died meanwhile
            super().on_step_end()

    def _validate(self) -> Any:
        try:
            return super()._validate()
        except Exception as error:
            lost = _failures.take_lost("eval")
            if not lost:
                raise
            what = f"validation after step {self.global_steps}"
            raise EnvError(f"{what}: {len(lost)} episodes are lost: {lost[0].cause}") from error

    def _val_metrics_update(
        self, data_sources: Any, sample_uids: Any, infos: Any, sample_turns: Any, **options: Any
    ) -> Any:
        failed = [rate == 1.0 for rate in infos.get("gem/error_rate", [])] or [False] * len(sample_turns)
        rewards = [None if fails else reward for reward, fails in zip(infos["reward"], failed, strict=True)]
        turns = [count for count, fails in zip(sample_turns, failed, strict=True) if not fails]
        infos = {**infos, "reward": rewards}  # verl's means skip None
        sources = map(_failures.source_of, data_sources)
        played = [source for source, fails in zip(sources, failed, strict=True) if not fails]
        lost = [(each.source, each.cause) for each in _failures.take_lost("eval")]
        step = f"validation after step {self.global_steps}"
        counts = self._ledgers["eval"].close_step(step, played, lost)
        metrics = super()._val_metrics_update(data_sources, sample_uids, infos, turns, **options)
        return metrics | {f"val-aux/{name}": value for name, value in counts.items() if name != "gem/filled"}


@v1.register_trainer("gem_sync")
class GemTrainerSync(GemTrainer, v1.PPOTrainerSync):  # type: ignore[misc]
    """``gem_sync``: the next step is played after the update, with the new weights."""


@v1.register_trainer("gem_colocate_async")
class GemTrainerColocateAsync(GemTrainer, v1.PPOTrainerColocateAsync):  # type: ignore[misc]
    """``gem_colocate_async``: long episodes continue in the next step, with the new weights."""


@v1.register_trainer("gem_separate_async")
class GemTrainerSeparateAsync(GemTrainer, v1.PPOTrainerSeparateAsync):  # type: ignore[misc]
    """``gem_separate_async``: episodes are played on other GPUs during the update."""


def _nothing_left(lost: list[_failures.Lost], what: str) -> EnvError:
    """Return the error that ends a run if all episodes of an update are lost."""
    failed = [each.episode for each in lost if each.episode is not None]
    if failed:
        return nothing_trainable(failed, what)
    return EnvError(f"{what}: all {len(lost)} episodes are lost: {lost[0].cause}")


def _split(batch: Any) -> tuple[list[str], list[str]]:
    """Return the keys of the rows that were played, and of the rows that fill the batch up."""
    keys: tuple[list[str], list[str]] = ([], [])
    for key, tag in zip(batch.keys, batch.tags, strict=True):
        keys[bool(tag.get("is_padding"))].append(key)
    return keys


def _spread(is_pad: list[bool], ranks: int) -> list[int]:
    """Return an order in which the rows that fill a batch are spread evenly over the rows of each rank.

    verl cuts the rows of a rank into mini-batches in this order. The loss of a mini-batch without any played
    row would be 0 divided by 0.
    """
    size = len(is_pad) // ranks
    order: list[int] = []
    for first in range(0, len(is_pad), size):
        parts: tuple[list[int], list[int]] = ([], [])
        for row in range(first, first + size):
            parts[is_pad[row]].append(row)
        places = [((n + 0.5) / len(part), row) for part in parts for n, row in enumerate(part)]
        order += [row for _, row in sorted(places)]
    return order


def _fill(pads: list[str], computed: Any) -> None:
    """Store zeros in the rows that fill a batch up, for the fields that `computed` has."""
    zeros = torch.zeros_like(_column(computed, pads, "response_mask"), dtype=torch.float32)
    names = {"advantages", "returns", "token_level_rewards", "rollout_is_weights"} & set(computed.fields)
    fields = TensorDict(dict.fromkeys(names, zeros), batch_size=len(pads))
    tq.kv_batch_put(keys=pads, partition_id=computed.partition_id, fields=fields)


def _clear_rewards(batch: Any, keys: list[str]) -> None:
    """Remove the rewards of outputs of an agent loop that verl copied from its last output."""
    rewards = torch.zeros_like(_column(batch, keys, "rm_scores"))
    fields = TensorDict({"rm_scores": rewards}, batch_size=len(keys))
    tq.kv_batch_put(keys=keys, partition_id=batch.partition_id, fields=fields)


def _column(batch: Any, keys: list[str], name: str) -> Any:
    """Return a field of the rows with these keys, from the partition of a batch."""
    return tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=[name])[name]


def _rows_counted(workers: Any, method: str) -> AbstractContextManager[None]:
    """Make a loss that is a mean over rows divide by the number of played rows, not by the batch size."""
    update = getattr(workers, method)

    def counted(batch: Any) -> Any:
        keys, pads = _split(batch)
        if pads:  # with several updates, each one divides by the mean number of rows per update
            batch.extra_info["global_batch_size"] *= len(keys) / len(batch)
        return update(batch)

    return replaced(workers, method, counted)


def _plain(extra: Any) -> dict[str, Any]:
    """Return the value inside verl's wrapper of a non-tensor value."""
    return dict(getattr(extra, "data", extra) or {})
