"""Lost episodes, which no agent loop made a row of that could be trained on; GEM's worker records them.

verl logs the error of an agent loop or of a reward function and continues with the other rows. GEM's worker
records the source and the cause of every such episode, whichever agent loop plays it, so that GEM's trainer
modes can count them and end a run that loses all episodes of a source.

verl stores whatever an agent loop returns, so the agent loop ``gem`` returns nothing for a failure. That
keeps it out of every baseline, filter, metric, and loss, with any estimator. The other samples of its prompt
remain in the batch. A prompt that has no sample left is marked as failed, as in verl: synchronous modes train
on the rest of the batch; asynchronous modes and ``sync_refill_failed_groups`` replace the prompt.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import transfer_queue as tq

from gem_chat._failures import describe_failures, nothing_trainable
from gem_core._core import Split
from gem_core.rollout import Episode
from gem_core.trainers._failures import pack_outline, unpack_outline
from gem_verl._rows import AGENT_NAME

PARTITIONS: dict[Split, str] = {"train": "gem_lost_train", "eval": "gem_lost_eval"}
"""Partitions of the TransferQueue that hold lost episodes until `take_lost`."""

UNKNOWN = "unknown"
"""Source of rows without ``data_source``, as in verl's validation."""


class Lost(NamedTuple):
    """An episode without a row to train on.

    Attributes:
        source: ``data_source`` of its row.
        cause: Why it is lost.
        episode: Outline of the episode; None if another agent loop than ``gem`` played it.
    """

    source: str
    cause: str
    episode: Episode | None


def source_of(data_source: Any) -> str:
    """Return the source of a row, which some rows of a file may lack."""
    return UNKNOWN if data_source is None or data_source == "" else str(data_source)


@dataclass
class Group:
    """The samples of one prompt, and facts that verl does not pass to the agent loop that plays them.

    Attributes:
        samples: Number of samples.
        position_limit: The model's maximum number of tokens, which limits verl's servers by default.
        validating: Whether the samples belong to a validation.
        source: ``data_source`` of the row.
        agent: Agent loop of the row.
    """

    samples: int
    position_limit: int
    validating: bool = False
    source: str = UNKNOWN
    agent: str = AGENT_NAME
    _lost: dict[str, Episode | None] = field(default_factory=dict)

    async def lose(self, key: str, cause: str, episode: Episode | None = None) -> None:
        """Record that a sample has no row to train on; only the first cause counts.

        Args:
            key: A key that is unique in the run.
            cause: Why it has none.
            episode: The episode, if the agent loop ``gem`` played one.
        """
        if key not in self._lost:
            self._lost[key] = episode
            outline = None if episode is None else pack_outline(episode)
            tag = {"source": self.source, "cause": f"agent loop {self.agent}: {cause}", "episode": outline}
            partition = PARTITIONS["eval" if self.validating else "train"]
            await tq.async_kv_put(key=key, partition_id=partition, tag=tag)

    async def leave_out(self, episode: Episode, key: str) -> None:
        """Record a failed episode; in training, it gets no row.

        Args:
            episode: The failed episode.
            key: A key that is unique in the run.

        Raises:
            EnvError: All samples of the prompt failed in training, and this was the last one.
        """
        await self.lose(key, describe_failures([episode]), episode)
        failed = [lost for lost in self._lost.values() if lost is not None]
        if len(failed) == self.samples and not self.validating:
            raise nothing_trainable(failed, "one prompt")


group: ContextVar[Group | None] = ContextVar("gem_verl_group", default=None)
"""Group of the current prompt, set by GEM's worker; None in any other worker."""


def take_lost(split: Split = "train") -> list[Lost]:
    """Return the episodes that were lost since the last call."""
    partition = PARTITIONS[split]
    tags = (tq.kv_list(partition_id=partition) or {}).get(partition) or {}
    if tags:
        tq.kv_clear(keys=list(tags), partition_id=partition)
    return [
        Lost(tag["source"], tag["cause"], None if tag["episode"] is None else unpack_outline(tag["episode"]))
        for tag in tags.values()
    ]
