"""Environments with items, tracked through the data of a trainer: an epoch plays each item once."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path

from gem_chat import EnvPlayer, MessagesContext
from gem_core._tasks import count_items
from gem_core.rollout import EnvPool, Episode
from gem_core.tasks import EnvChoice, TaskRow, make_tasks

HAS_RG = importlib.util.find_spec("reasoning_gym") is not None
KINDS = ["file", "generated", "service", *(["reasoning-gym"] if HAS_RG else [])]


def source_of(kind: str, folder: Path) -> EnvChoice:
    """Return a small dataset: in a file, generated, of customers, or of reasoning-gym."""
    if kind == "file":
        path = folder / "rows.jsonl"
        rows = ({"problem": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(50))
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return EnvChoice("math:GSM8K", {"dataset_name": str(path), "split": None, "symbolic": False})
    if kind == "generated":
        return EnvChoice("math:Arithmetic-v0", {"size": 40})
    if kind == "service":
        return EnvChoice("service:Shop-v0")
    return EnvChoice("rg:leg_counting", {"size": 40})


def check_epochs(source: EnvChoice, tasks: Sequence[TaskRow]) -> None:
    """Check the tasks that a trainer passes to its rollout: full epochs of one source, in order."""
    items = count_items(source, "train")
    assert items
    assert len(tasks) % items == 0
    for first in range(0, len(tasks), items):
        assert len({task["item"] for task in tasks[first : first + items]}) == items
    episodes = asyncio.run(_play(tasks[:items]))
    assert len({episode.metadata["item"] for episode in episodes}) == items
    assert all(episode.success for episode in episodes)
    _check_apart(source, tasks)


def check_eval_tasks(source: EnvChoice, tasks: Sequence[TaskRow]) -> None:
    """Check all tasks of an evaluation during training: each evaluation item once."""
    items = count_items(source, "eval")
    assert items
    assert items == len(tasks) == len({task["item"] for task in tasks})
    wanted = [(task["env_kwargs"], task["item"]) for task in make_tasks([source], items, split="eval")]
    assert [(task["env_kwargs"], task["item"]) for task in tasks] == wanted


def _check_apart(source: EnvChoice, tasks: Sequence[TaskRow]) -> None:
    for_eval = [
        (task["env_kwargs"], task["item"])
        for task in make_tasks([source], count_items(source, "eval") or 0, split="eval")
    ]
    assert for_eval
    assert all((task["env_kwargs"], task["item"]) not in for_eval for task in tasks)


async def _play(tasks: Sequence[TaskRow]) -> list[Episode]:
    pool = EnvPool()
    try:
        return [await pool.play(task, EnvPlayer("oracle"), MessagesContext()) for task in tasks]
    finally:
        pool.close()
