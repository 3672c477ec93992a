"""Episodes of several rows, where OpenRLHF has one row per sample.

An episode stays one sample until its batch is complete, so prompts, groups, dynamic filtering, and evaluation
count episodes. The experience maker then lays out the rows of the batch:

- An update has the rows of ``--train.batch_size`` whole episodes, whatever their number. Rows without a loss
  fill it up, because all updates, ranks, and micro-batches of OpenRLHF have equally many rows.
- A loss that averages over rows is weighted as if each episode were one row; see
  `gem_core.trainers._weights`.
- Means over samples count the first row of each episode.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gem_core.trainers._imports import replaced
from gem_core.trainers._weights import RowAverage, row_factors
from gem_openrlhf._labels import ROWS, played_label

UPDATES = "gem/updates"
"""Metric: number of steps of the optimizer in a batch of episodes that may have several rows."""


@dataclass(frozen=True)
class RowLayout:
    """The rows of a batch in the order of their indices.

    Attributes:
        episodes: Position of each row's episode in the rollout; -1 for a row that fills an update.
        updates: The update that each row is in.
    """

    episodes: list[int]
    updates: list[int]

    def factors(self, average: RowAverage, lengths: Sequence[int]) -> list[float]:
        """Return the factor of each row in its update; `lengths` are its numbers of action tokens."""
        result = [1.0] * len(lengths)
        for update in set(self.updates):
            rows = [row for row, assigned in enumerate(self.updates) if assigned == update]
            factors = row_factors(
                average, [lengths[row] for row in rows], [self.episodes[row] for row in rows]
            )
            for row, factor in zip(rows, factors, strict=True):
                result[row] = factor
        return result


def lay_out_rows(samples: Sequence[Any], args: Any) -> tuple[list[Any], RowLayout]:
    """Return the rows of a rollout, one sample each, with the same number for each update and rank.

    Args:
        samples: Samples of OpenRLHF, one for each episode.
        args: OpenRLHF's flags.
    """
    updates = max(1, len(samples) // args.train.batch_size)
    order = list(range(len(samples)))
    if updates > 1:
        random.shuffle(order)  # as OpenRLHF's actor would
    rows: list[list[tuple[int, Any]]] = [[] for _ in range(updates)]
    for place, number in enumerate(order):
        update_rows = rows[place * updates // len(order)]
        update_rows += [(number, row) for row in _rows_of(samples[number])]
    ranks = (
        args.actor.num_nodes
        * args.actor.num_gpus_per_node
        // args.ds.ring_attn_size
        // args.ds.tensor_parallel_size
    )
    scored = args.rollout.micro_batch_size
    unit = math.lcm(args.train.micro_batch_size, scored // math.gcd(scored, updates)) * ranks
    size = math.ceil(max(map(len, rows)) / unit) * unit
    for update_rows in rows:
        update_rows += [(-1, _filler(update_rows[0][1])) for _ in range(size - len(update_rows))]
    # The actor of a rank gets its part of the whole list, and cuts it into updates.
    placed = [
        (number, update, row)
        for rank in range(ranks)
        for update, update_rows in enumerate(rows)
        for number, row in update_rows[rank::ranks]
    ]
    for _, _, row in placed:
        row.info[UPDATES] = torch.tensor([float(updates)])
    return [row for *_, row in placed], RowLayout([n for n, *_ in placed], [u for _, u, _ in placed])


def _rows_of(sample: Any) -> list[Any]:
    """Return the rows of an episode. The first one has the sizes of the episode, for the metrics."""
    rows = [sample, *getattr(sample, ROWS, ())]
    totals = {"total_length": sum(row.total_length for row in rows)}
    sample.response_length = sum(row.response_length for row in rows)
    totals["response_clip_ratio"] = torch.stack([row.info["response_clip_ratio"] for row in rows]).any(0)
    for row in rows:
        row.info |= totals
    return rows


def _filler(row: Any) -> Any:
    """Return a row without a loss, which fills an update with samples like `row`."""
    ids = row.sequences[:, :2]
    return dataclasses.replace(
        row,
        sequences=ids,
        attention_mask=torch.ones_like(ids),
        action_mask=torch.zeros_like(ids[:, 1:]),
        rollout_log_probs=None if row.rollout_log_probs is None else row.rollout_log_probs.new_zeros(1, 1),
        labels=[played_label("", None, None)],
        images=[None],
        mm_train_inputs=[None],
        rewards=torch.zeros_like(row.rewards),
        scores=torch.zeros_like(row.scores),
        response_length=torch.zeros_like(row.response_length),
        truncated=torch.zeros_like(row.truncated),
        total_length=torch.full_like(row.total_length, ids.shape[1]),
        info={name: torch.zeros_like(value) for name, value in row.info.items()},
    )


def actor_updates(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `ActorPPOTrainer.ppo_train` so that each update has the rows that were laid out for it."""

    @functools.wraps(original)
    def ppo_train(self: Any, kl_ctl: float) -> Any:
        buffer = self.replay_buffer
        if not buffer.items or UPDATES not in buffer.items[0].info:
            return original(self, kl_ctl)
        from openrlhf.trainer.ray import ppo_actor

        updates = int(buffer.items[0].info[UPDATES])
        steps, rest = divmod(len(buffer.items), updates * buffer.sample_batch_size)
        assert not rest, "each rank has as many rows for each update"
        engine = self.actor.model
        micro_batch = engine.train_micro_batch_size_per_gpu() * engine.dp_world_size
        engine.set_train_batch_size(steps * micro_batch)
        engine.optimizer.gradient_accumulation_steps = steps
        engine.micro_steps = 0  # which it counts from the start of the run
        with (
            replaced(self.strategy, "accumulated_gradient", steps),
            replaced(ppo_actor, "DataLoader", functools.partial(_in_order, ppo_actor.DataLoader)),
        ):
            return original(self, kl_ctl)

    return ppo_train


def _in_order(loader: Callable[..., Any], *args: Any, shuffle: bool, **options: Any) -> Any:
    return loader(*args, shuffle=False, **options)


def means_of_episodes(values: torch.Tensor, lengths: torch.Tensor, episodes: Sequence[int]) -> torch.Tensor:
    """Return, for each row, the mean of its episode over action tokens.

    Args:
        values: Mean over the action tokens of each row.
        lengths: Number of action tokens of each row.
        episodes: Episode of each row.
    """
    weighted = sums_of_episodes(values.double() * lengths, episodes)
    return (weighted / sums_of_episodes(lengths.double(), episodes).clamp(min=1)).float()


def sums_of_episodes(values: torch.Tensor, episodes: Sequence[int]) -> torch.Tensor:
    """Return, for each row, the sum over the rows of its episode."""
    _, places = torch.tensor(episodes).unique(return_inverse=True)
    return values.new_zeros(int(places.max()) + 1).index_add(0, places, values)[places]
