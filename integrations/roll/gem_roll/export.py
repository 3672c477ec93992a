"""`gem-core export --to roll`: ``custom_envs`` for a YAML, and beside it the table of tasks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gem_core._util.files import write_atomically
from gem_core.errors import ConfigError
from gem_core.tasks import EnvChoice, TaskRow, write_tasks
from gem_roll.env import PREFIX
from gem_roll.options import SECTION, TRAJECTORY


def write(rows: Iterable[TaskRow], path: str | Path) -> None:
    """Write ``<name>.yaml`` with a tag for each environment, and ``<name>.jsonl`` with the tasks.

    ROLL repeats a task ``group_size`` times by itself, so a row a task is enough.

    Raises:
        ConfigError: The file does not end with ``.yaml``.
    """
    path = Path(path)
    if path.suffix not in (".yaml", ".yml"):
        raise ConfigError(f"{path}: what ROLL reads is a YAML file; end its name with .yaml")
    tasks = list(rows)
    table = path.with_suffix(".jsonl")
    write_tasks(tasks, table)
    counts = Counter(EnvChoice(row["env_id"], row["env_kwargs"]).label for row in tasks)
    sources = {EnvChoice(row["env_id"], row["env_kwargs"]).label: row for row in tasks}
    content: dict[str, Any] = {
        "custom_envs": {
            SECTION: {"tasks": str(table.resolve())},
            **{
                tag: _section(sources[label])
                for tag, label in zip(tag_names(list(counts)), counts, strict=True)
            },
        }
    }
    shares = ", ".join(
        f"{tag} {count}" for tag, count in zip(tag_names(list(counts)), counts.values(), strict=True)
    )
    text = f"# Tasks of each tag, for num_groups_partition: {shares}\n{to_yaml(content)}"
    write_atomically(path, [text])


def _section(row: TaskRow) -> dict[str, Any]:
    return {
        "env_type": PREFIX + row["env_id"],
        "env_manager_cls": TRAJECTORY,
        "max_steps": None,
        "max_tokens_per_step": None,
        "agent_system_template": None,
        "agent_template": "{observation}",
        "env_config": row["env_kwargs"],
    }


def tag_names(labels: list[str]) -> list[str]:
    """A short name for each label of an environment: that of its class where no other has it."""
    names = [label.partition("(")[0].rpartition(":")[2].partition("-")[0] for label in labels]
    return [
        name if names.count(name) == 1 else f"{name}{number}" for number, name in enumerate(names, start=1)
    ]


def to_yaml(value: Any, indent: int = 0) -> str:
    """Block style for maps; everything else is JSON, which is YAML too."""
    if not isinstance(value, dict) or not value:
        return json.dumps(value)
    lines = []
    for key, item in value.items():
        below = isinstance(item, dict) and item
        shown = "\n" + to_yaml(item, indent + 2) if below else " " + to_yaml(item)
        lines.append(f"{' ' * indent}{key}:{shown}")
    return "\n".join(lines) + ("\n" if indent == 0 else "")
