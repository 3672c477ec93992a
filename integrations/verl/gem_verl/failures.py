"""Failed episodes of a training batch, which leave no row; GEM's trainer modes count them.

verl stores whatever an agent loop returns, so returning nothing keeps a failed episode out of every baseline,
filter, metric, and loss, with any estimator. The other samples of its prompt remain in the batch. A prompt
that has no sample left is marked as failed, as in verl: synchronous modes train on the rest of the batch;
asynchronous modes and ``sync_refill_failed_groups`` replace the prompt.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field

import transfer_queue as tq

from gem_core.rollout import Episode, nothing_trainable
from gem_core.trainers.failures import pack_outline, unpack_outline

PARTITION = "gem_failed"
"""Partition of the TransferQueue that holds outlines of failed episodes until the trainer takes them."""


@dataclass
class Group:
    """The samples of one prompt, and facts that verl does not pass to the agent loop that plays them.

    Attributes:
        samples: Number of samples.
        position_limit: The model's maximum number of tokens, which limits verl's servers by default.
        validating: Whether the samples belong to a validation.
        report: Whether a trainer collects the outlines with `take_failed`.
    """

    samples: int
    position_limit: int
    validating: bool = False
    report: bool = False
    _failed: list[Episode] = field(default_factory=list)

    async def leave_out(self, episode: Episode, key: str) -> None:
        """Record an episode that gets no row.

        Args:
            episode: The failed episode.
            key: A key that is unique in the run.

        Raises:
            EnvError: All samples of the prompt failed, and this was the last one.
        """
        self._failed.append(episode)
        if self.report:
            tag = {"episode": pack_outline(episode)}
            await tq.async_kv_put(key=key, partition_id=PARTITION, tag=tag)
        if len(self._failed) == self.samples:
            raise nothing_trainable(self._failed, "one prompt")


group: ContextVar[Group | None] = ContextVar("gem_verl_group", default=None)
"""Group of the current prompt, set by GEM's worker; None in any other worker."""


def take_failed() -> list[Episode]:
    """Return the outlines of the episodes that failed since the last call."""
    tags = (tq.kv_list(partition_id=PARTITION) or {}).get(PARTITION) or {}
    if tags:
        tq.kv_clear(keys=list(tags), partition_id=PARTITION)
    return [unpack_outline(tag["episode"]) for tag in tags.values()]
