"""Rows for OpenRLHF's dataset class, whose ``label`` carries the task to the agent and the episode back.

OpenRLHF passes the label of a prompt to the agent and receives a label with each sample, as text that it
never reads. Both the task and its episode are stored as JSON in this column, because OpenRLHF itself keeps
only one float32 reward per sample.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gem_chat._files import check_ending
from gem_core._util.files import write_json_lines
from gem_core._util.foreign_json import read_json
from gem_core.advantages._declaration import Need
from gem_core.errors import ConfigError
from gem_core.rollout import Episode, Row
from gem_core.rollout._metrics import without_tokens
from gem_core.rollout._rows import Span
from gem_core.tasks import EnvChoice, TaskRow, read_task

OWN_SOURCE = "default"
"""Source of the user's own rows without a ``datasource``, as in OpenRLHF."""
ROWS = "gem_rows"
"""Key in an agent's result, and attribute of the sample, of the further rows of an episode."""
_KEY = "gem_episode"


class OwnLabel(NamedTuple):
    """Label of one of the user's own rows, which OpenRLHF's agent plays, with the source of the row."""

    source: str
    """The row's ``datasource``."""
    label: Any
    """The label in the user's file."""


class Played(NamedTuple):
    """A row of an episode in the form in which the experience maker receives it."""

    source: str
    """Name of the environment, as in the ``datasource`` of a row."""
    episode: Episode | None
    """The episode without tokens and texts; without a seed for one of the user's own rows. None in all but
    the first row of the episode, and in a row that only fills an update."""
    spans: list[Span]
    """Start and end of each turn's response in the row; empty if the episode is not trainable."""
    turns: list[int]
    """Indices of these turns in the episode."""

    @property
    def is_empty(self) -> bool:
        """Whether the row has no sampled token."""
        return all(start == end for start, end in self.spans)

    @property
    def is_own(self) -> bool:
        """Whether this is one of the user's own rows, which is `Played` only if it has no reward."""
        return self.episode is not None and self.episode.seed is None


def openrlhf_row(task: TaskRow) -> dict[str, str]:
    """Return the row of a task for OpenRLHF's dataset class.

    The input only names the task; the reset returns the first observation. Each task has a different input,
    because OpenRLHF's evaluation finds rows by their input.
    """
    label = EnvChoice.of(task).label
    return {"input": f"{label}, seed {task['seed']}", "label": json.dumps(task), "datasource": label}


def write(rows: Iterable[TaskRow], path: str | Path) -> None:
    """Write one row per task; OpenRLHF repeats each row ``--rollout.n_samples_per_prompt`` times.

    Raises:
        ConfigError: OpenRLHF would not recognize the format from the name of the file.
    """
    check_ending(path, "OpenRLHF", ".jsonl", ".json")
    write_json_lines(path, map(openrlhf_row, rows))


def names_task(label: Any) -> bool:
    """Return whether a label is a task, perhaps a broken one, and not a label of the user's own."""
    try:
        fields = read_json(label)
    except (TypeError, ValueError):
        return False
    return isinstance(fields, dict) and "env_id" in fields


def task_of(label: Any) -> TaskRow:
    """Return the task of a row.

    Raises:
        ConfigError: `openrlhf_row` did not write the label.
    """
    try:
        return read_task(json.loads(label))
    except (TypeError, ValueError, AttributeError):  # a ConfigError is a ValueError
        raise ConfigError(
            f"the label {str(label)[:80]!r} names no task; generate the data with `gem-core export --to "
            "openrlhf` and set --data.input_key input --data.label_key label"
        ) from None


def played_label(source: str, episode: Episode | None, row: Row | None, needs: Collection[Need] = ()) -> str:
    """Return the label of a row.

    Args:
        source: As in `Played`.
        episode: The episode, in its first row.
        row: The row; None for one that only fills an update.
        needs: What the estimator needs of the episode.
    """
    outline = None if episode is None else without_tokens(episode, needs).to_dict()
    spans, turns = (row.spans, list(row.turns)) if row else ([], [])
    return json.dumps({_KEY: outline, "source": source, "spans": spans, "turns": turns})


def own_source(row: Mapping[str, Any]) -> str:
    """Return the source of one of the user's own rows, whose ``datasource`` may be any value, or none."""
    source = row.get("datasource")
    return OWN_SOURCE if source is None or source == "" else str(source)


def source_of(label: Any) -> str:
    """Return the source of a played sample: its environment, or the ``datasource`` of one's own row."""
    played = played_of(label)
    if played is not None:
        return played.source
    return label.source if isinstance(label, OwnLabel) else OWN_SOURCE


def played_of(label: Any) -> Played | None:
    """Return the row whose label `played_label` wrote; None for the label of another agent."""
    if not isinstance(label, str) or not label.startswith(f'{{"{_KEY}": '):
        return None
    fields = json.loads(label)
    spans = [(start, end) for start, end in fields["spans"]]
    episode = None if fields[_KEY] is None else Episode.from_dict(fields[_KEY])
    return Played(fields["source"], episode, spans, fields["turns"])
