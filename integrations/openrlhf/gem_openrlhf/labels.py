"""The column ``label``: a task on the way to the agent, and the episode on the way back.

OpenRLHF carries the label of a prompt to the agent and takes one back with each sample, as text that
it never looks into. So a task travels as JSON, and so does what became of it: OpenRLHF itself keeps
one reward per sample, as float32.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from gem_core.errors import ConfigError
from gem_core.rollout import Episode, without_tokens
from gem_core.tasks import EnvChoice, TaskRow, read_task

_KEY = "gem_episode"


class Played(NamedTuple):
    """An episode as the experience maker gets it."""

    source: str
    """The environment as a row's ``datasource`` names it."""
    episode: Episode
    """Without tokens and texts."""
    spans: list[tuple[int, int]]
    """First token of each response and the one after its last, in the row; empty when not trainable."""

    @property
    def is_empty(self) -> bool:
        """Whether the row has no token that was sampled: not trainable, or nothing but empty responses."""
        return all(start == end for start, end in self.spans)


def openrlhf_row(task: TaskRow) -> dict[str, str]:
    """A row for OpenRLHF's data set class.

    The input only names the task: the environment's first observation is made by the reset. It is
    different for each task, because OpenRLHF's evaluation looks rows up by it.
    """
    label = EnvChoice(task["env_id"], task["env_kwargs"]).label
    return {"input": f"{label}, seed {task['seed']}", "label": json.dumps(task), "datasource": label}


def task_of(label: Any) -> TaskRow:
    """The task of a row.

    Raises:
        ConfigError: The label is none that `openrlhf_row` writes.
    """
    try:
        return read_task(json.loads(label))
    except (TypeError, ValueError, AttributeError):  # a ConfigError is a ValueError
        raise ConfigError(
            f"the label {str(label)[:80]!r} names no task; make the data with `gem-core export --to "
            "openrlhf` and give --data.input_key input --data.label_key label"
        ) from None


def played_label(task: TaskRow, episode: Episode, spans: list[tuple[int, int]]) -> str:
    """The label of a sample that was played."""
    source = EnvChoice(task["env_id"], task["env_kwargs"]).label
    return json.dumps({_KEY: without_tokens(episode).to_dict(), "source": source, "spans": spans})


def played_of(label: Any) -> Played | None:
    """What the GEM agent put into a label; None for the label of another agent."""
    if not isinstance(label, str) or not label.startswith(f'{{"{_KEY}": '):
        return None
    fields = json.loads(label)
    spans = [(start, end) for start, end in fields["spans"]]
    return Played(fields["source"], Episode.from_dict(fields[_KEY]), spans)
