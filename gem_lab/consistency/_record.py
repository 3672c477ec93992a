"""`Record`: the inputs of a trainer's loss in one step, in the same form for every trainer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gem_core._util.files import write_atomically
from gem_core._util.foreign_json import read_json_file
from gem_core._util.messages import error_line
from gem_core.errors import TraceError
from gem_core.rollout import Episode

SCHEMA_VERSION = 1
FLAGS = ("terminated", "truncated", "stop_reason")
"""Fields of `Played` that some trainers do not pass on, because their loss does not need them."""


@dataclass
class Played:
    """One episode as it arrived in the trainer's batch.

    Attributes:
        env_id: Environment id of the task.
        seed: Random seed of the task.
        trainable: Whether the episode is in the loss. If not, the following fields are empty.
        token_ids: Tokens of the whole row, from the first prompt to the last response; of several rows, one
            after the other.
        turn_ids: Turn of each token; -1 for tokens that the model did not generate.
        rewards: Reward of each turn; None if the trainer does not pass them on.
        terminated: Flag of `gem_core.rollout.Episode`; None if the trainer does not pass it on.
        truncated: Flag of `gem_core.rollout.Episode`; None if the trainer does not pass it on.
        stop_reason: Stop reason of `gem_core.rollout.Episode`; None if the trainer does not pass it on.
        advantages: Advantage of each turn, as used by the loss.
        spread: Largest difference between the advantages of the tokens of one turn.
        row_lengths: Number of tokens of each row; empty if the episode is one row.
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
    row_lengths: list[int] = field(default_factory=list)

    @classmethod
    def from_episode(cls, episode: Episode) -> Played:
        """Return the record of an episode; a turn without an advantage counts as 0."""
        played = cls(episode.env_id, episode.seed or 0, episode.trainable)
        played.copy_outcome(episode)
        if episode.trainable:
            rows = episode.rows()
            played.token_ids = [token for row in rows for token in row.token_ids]
            played.turn_ids = [row.turns[turn] if turn >= 0 else -1 for row in rows for turn in row.turn_ids]
            played.row_lengths = [len(row) for row in rows] if len(rows) > 1 else []
            played.advantages = [turn.advantage or 0.0 for turn in episode.turns]
        return played

    def copy_outcome(self, episode: Episode) -> None:
        """Copy rewards and flags from an episode that passed through the trainer."""
        self.terminated, self.truncated = episode.terminated, episode.truncated
        self.stop_reason = episode.stop_reason
        self.rewards = episode.rewards if episode.trainable else []

    def read_advantages(self, token_advantages: Sequence[float]) -> None:
        """Set `advantages` and `spread`.

        Args:
            token_advantages: Advantage of each token of the row, with the same length as `turn_ids`.
        """
        by_turn: dict[int, list[float]] = {}
        for turn, value in zip(self.turn_ids, token_advantages, strict=True):
            if turn >= 0:
                by_turn.setdefault(turn, []).append(value)
        self.advantages = [by_turn[turn][0] for turn in sorted(by_turn)]
        # np.max propagates NaN, which `max` ignores
        self.spread = float(np.max([np.ptp(values) for values in by_turn.values()], initial=0.0))


@dataclass
class Record:
    """One step of one trainer.

    Attributes:
        trainer: Name of the trainer; "core", or a name that begins with "core-", for gem_core itself.
        versions: Maps the name of each relevant package to its version.
        command: Command that wrote the record.
        model: Hash of the initial weights and the tokenizer, equal for all trainers.
        episodes: Episodes of the step, in any order.
        reference: Name of the record of gem_core to compare with.
        not_carried: Maps a field of `Played` to the reason why it does not reach the trainer's batch.
        gradient: Norm of (gradient - reference), divided by the norm of the reference; None if no update
            was made.
        cases: Results with other estimators and options on the same episodes. Maps a description to the
            largest difference between the trainer's advantages and the expected ones, divided by the
            largest expected advantage if that is above 1.
        notes: Further measurements, by description.
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
        """Write the record as JSON, atomically."""
        write_atomically(path, [json.dumps({"schema_version": SCHEMA_VERSION, **asdict(self)}) + "\n"])

    @classmethod
    def read(cls, path: str | Path) -> Record:
        """Read a record that `write` wrote.

        Raises:
            TraceError: The file is not a record, or has a different schema version.
        """
        try:
            fields: dict[str, Any] = read_json_file(path)
            if not isinstance(fields, dict):
                raise TraceError(f"{path}: not a record")
            version = fields.pop("schema_version", None)
            if version != SCHEMA_VERSION:
                raise TraceError(f"{path}: schema version {version!r}: expected {SCHEMA_VERSION}")
            episodes = [Played(**episode) for episode in fields.pop("episodes")]
            return cls(episodes=episodes, **fields)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise (
                error
                if isinstance(error, TraceError)
                else TraceError(f"{path}: not a record: {error_line(error)}")
            ) from error


def read_records(folder: str | Path) -> dict[str, Record]:
    """Return the records in a folder with one JSON file per trainer, by trainer.

    Raises:
        TraceError: A file is not a record.
    """
    records = [Record.read(path) for path in sorted(Path(folder).glob("*.json"))]
    return {record.trainer: record for record in records}
