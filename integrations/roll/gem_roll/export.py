"""`gem-core export --to roll`: ``custom_envs`` for a YAML, and the table of tasks next to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gem_core._util.files import write_atomically
from gem_core._util.yaml import to_yaml
from gem_core.errors import ConfigError
from gem_core.tasks import EnvChoice, TaskRow, write_tasks
from gem_roll.env import PREFIX
from gem_roll.kinds import SECTION, TRAJECTORY


def write(rows: Iterable[TaskRow], path: str | Path) -> None:
    """Write ``<name>.yaml`` with a tag for each environment, and ``<name>.jsonl`` with the tasks.

    ROLL repeats a task ``group_size`` times, so one row per task is enough.

    Raises:
        ConfigError: The name of the file does not end with ``.yaml``.
        MissingDependency: PyYAML is not installed.
    """
    path = Path(path)
    if path.suffix not in (".yaml", ".yml"):
        raise ConfigError(f"{path}: ROLL reads YAML files; the name must end with .yaml")
    tasks = list(rows)
    table = path.with_suffix(".jsonl")
    write_tasks(tasks, table)
    sources = [EnvChoice(row["env_id"], row["env_kwargs"]) for row in tasks]
    counts = Counter(source.label for source in sources)
    by_label = {source.label: source for source in sources}
    tags = dict(zip(counts, tag_names(list(counts)), strict=True))
    content = {
        "custom_envs": {
            SECTION: {"tasks": str(table.resolve())},
            **{tag: tag_section(by_label[label]) for label, tag in tags.items()},
        }
    }
    shares = ", ".join(f"{tags[label]} {count}" for label, count in counts.items())
    write_atomically(path, [f"# Tasks of each tag, for num_groups_partition: {shares}\n", to_yaml(content)])


def tag_section(source: EnvChoice, **options: Any) -> dict[str, Any]:
    """Return ``custom_envs.<tag>`` for an environment; `options` replace the defaults."""
    return {
        "env_type": PREFIX + source.env_id,
        "env_manager_cls": TRAJECTORY,
        "max_steps": None,
        "max_tokens_per_step": None,
        "agent_system_template": None,
        "agent_template": "{observation}",
        "env_config": dict(source.env_kwargs),
        **options,
    }


def tag_names(labels: list[str]) -> list[str]:
    """Return a short name for each label of an environment, without group and version if that is unique."""
    names = [label.partition("(")[0].rpartition(":")[2].partition("-")[0] for label in labels]
    return [
        name if names.count(name) == 1 else f"{name}{number}" for number, name in enumerate(names, start=1)
    ]
