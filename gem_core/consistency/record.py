"""What a trainer's loss consumed in one step, in a form that is the same for every trainer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gem_core._util.files import write_atomically
from gem_core.errors import TraceError
from gem_core.rollout import Episode

SCHEMA_VERSION = 1
FLAGS = ("terminated", "truncated", "stop_reason")
"""Fields of `Played` that are not numbers of a loss: a trainer may not carry them that far."""


@dataclass
class Played:
    """One episode, as it arrived in the trainer's batch.

    Attributes:
        env_id: Of the task.
        seed: Of the task.
        trainable: Whether it is in the loss. All that follows is empty for one that is not.
        token_ids: The whole row, from the first prompt to the last response.
        turn_ids: Turn of each token, -1 where the model did not write it.
        rewards: Per turn; None where the trainer does not carry them.
        terminated: As in `gem_core.rollout.Episode`; None where the trainer does not carry it.
        truncated: The same.
        stop_reason: The same.
        advantages: Per turn, as the loss consumed them.
        spread: Largest difference between the advantages of the tokens of one turn.
    """

    env_id: str
    seed: int
    trainable: bool = True
    token_ids: list[int] = field(default_factory=list)
    turn_ids: list[int] = field(default_factory=list)
    rewards: list[float] | None = None
    terminated: bool | None = None
    truncated: bool | None = None
    stop_reason: str | None = None
    advantages: list[float] = field(default_factory=list)
    spread: float = 0.0

    @classmethod
    def of_episode(cls, episode: Episode) -> Played:
        """An episode with its advantages; 0 for a turn without one."""
        made = cls(episode.env_id, episode.seed or 0, episode.trainable)
        made.copy_outcome(episode)
        if episode.trainable:
            sequence = episode.sequence()
            made.token_ids, made.turn_ids = sequence.token_ids, sequence.turn_ids
            made.advantages = [turn.advantage or 0.0 for turn in episode.turns]
        return made

    def copy_outcome(self, episode: Episode) -> None:
        """Take rewards and flags from an episode that came through the trainer, with or without tokens."""
        self.terminated, self.truncated = episode.terminated, episode.truncated
        self.stop_reason = episode.stop_reason
        self.rewards = episode.rewards if episode.trainable else []

    def read_advantages(self, of_tokens: Sequence[float]) -> None:
        """Per token of the row, as long as `turn_ids`: one number a turn, and how far its tokens differ."""
        by_turn: dict[int, list[float]] = {}
        for turn, value in zip(self.turn_ids, of_tokens, strict=True):
            if turn >= 0:
                by_turn.setdefault(turn, []).append(value)
        self.advantages = [by_turn[turn][0] for turn in sorted(by_turn)]
        # numpy's: where a value is NaN so is the difference, while `max` passes over it
        self.spread = float(np.max([np.ptp(values) for values in by_turn.values()], initial=0.0))


@dataclass
class Record:
    """One step of one trainer.

    Attributes:
        trainer: Name of the trainer; "core", or a name that begins with "core-", for gem_core itself.
        versions: Of the packages that matter, by name.
        command: What was run.
        model: Hash of the weights and the tokenizer that everybody starts from.
        episodes: In any order.
        reference: The record of gem_core to compare with.
        not_carried: Field of `Played` to the reason why it does not reach the trainer's batch.
        gradient: Norm of (gradient - reference) over the norm of the reference; None where no update
            was made.
        cases: On the same episodes, other estimators and options: what was asked for, to the largest
            difference between the trainer's advantages and the right ones, over the largest of these
            where that is above 1.
        notes: Further measured numbers, by what they are.
    """

    trainer: str
    versions: dict[str, str]
    command: str
    model: str
    episodes: list[Played]
    reference: str = "core"
    not_carried: dict[str, str] = field(default_factory=dict)
    gradient: float | None = None
    cases: dict[str, float] = field(default_factory=dict)
    notes: dict[str, float] = field(default_factory=dict)

    @property
    def is_reference(self) -> bool:
        """Whether this is a step of gem_core itself."""
        return self.trainer == "core" or self.trainer.startswith("core-")

    def write(self, path: str | Path) -> None:
        """Write JSON; the file appears at once or not at all."""
        write_atomically(path, [json.dumps({"schema_version": SCHEMA_VERSION, **asdict(self)}) + "\n"])

    @classmethod
    def read(cls, path: str | Path) -> Record:
        """Inverse of `write`.

        Raises:
            TraceError: It is no record of this schema version.
        """
        try:
            fields: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
            version = fields.pop("schema_version", None)
            if version != SCHEMA_VERSION:
                raise TraceError(f"{path}: schema version {version!r}; expected {SCHEMA_VERSION}")
            episodes = [Played(**episode) for episode in fields.pop("episodes")]
            return cls(episodes=episodes, **fields)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise (
                error if isinstance(error, TraceError) else TraceError(f"{path}: no record: {error}")
            ) from error


def read_records(folder: str | Path) -> dict[str, Record]:
    """The records in a folder, one file a trainer, by trainer.

    Raises:
        TraceError: A file is no record.
    """
    records = [Record.read(path) for path in sorted(Path(folder).glob("*.json"))]
    return {record.trainer: record for record in records}
