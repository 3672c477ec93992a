"""The updates of a step: their number, which decides when ROLL computes old log-probs, and their averages."""

from __future__ import annotations

import copy
from typing import Any

from gem_core.trainers._weights import RowAverage
from gem_roll._kinds import has_several_rows, managers_of

AVERAGES: dict[str, RowAverage] = {"seq-mean-token-mean": "row means", "seq-mean-token-sum": "row sums"}
"""Values of ``loss_agg_mode`` that average over rows; the others give every token the same weight."""


def update_size(config: Any) -> int:
    """Return the number of rows of an update on each GPU group of the actor."""
    training = config.actor_train.training_args
    size: int = training.per_device_train_batch_size * training.gradient_accumulation_steps
    return size


def needs_old_logprobs(config: Any) -> bool:
    """Return whether a step may have several updates, so that PPO needs the log-probs before the first one.

    For a single update, ROLL uses the update's own log-probs as the old ones. It counts only complete batches
    of episodes as updates, but an episode may have several rows, and copies fill the last batch.
    """
    if {has_several_rows(manager) for manager in managers_of(config).values()} != {False}:
        return True
    filled = [config.actor_train.infer_batch_size]
    filled += [config.reference.infer_batch_size] * config.enable_reference
    if any(update_size(config) % size for size in filled):  # rows are copied to fill all of these sizes
        return True
    # ROLL's rule is `rows // size > 1`, with the number of GPU groups in `size`; this asks for `rows > size`.
    doubled = copy.copy(config)
    doubled.rollout_batch_size = 2 * config.rollout_batch_size - 1
    doubled.set_old_logprobs_status()
    return bool(doubled.enable_old_logprobs_recompute)
