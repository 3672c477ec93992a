"""The official retail tasks of tau-bench from a checkout: `load_tau_bench`.

Nothing of tau-bench is included. Its tools are Python modules of the checkout and are run: use only a
checkout that you trust.
"""

from __future__ import annotations

import importlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from gem_core._util.checks import check_choice
from gem_core._util.messages import error_line
from gem_core.errors import DataError
from gem_envs._service.checkout import make_importable
from gem_envs._service.domain import Database, Domain, Operation, OperationRefused, ServiceTask

SPLITS = ("test", "train", "dev")

_RESPOND = "respond"

_PACKAGES = ("tau_bench", "tau_bench.envs", "tau_bench.envs.retail")


@lru_cache(maxsize=4)
def load_tau_bench(root: str, split: str = "test") -> Domain:
    """Return the retail service of a checkout.

    A conversation is graded as in tau-bench: the database must equal the one after the reference actions, and
    the assistant must have said the outputs.

    Args:
        root: Folder of the checkout, with ``tau_bench/envs/retail`` in it.
        split: "test", "train", or "dev".

    Raises:
        ConfigError: The split is unknown.
        DataError: The folder is not a checkout, or cannot be read.
    """
    check_choice("split", split, SPLITS)
    folder = Path(root) / "tau_bench" / "envs" / "retail"
    if not (folder / "wiki.md").is_file():
        raise DataError(
            f"{folder}: expected the retail service of tau-bench; pass the folder of a checkout as root"
        )
    try:
        tables = {
            name: (folder / "data" / f"{name}.json").read_text(encoding="utf-8")
            for name in ("orders", "products", "users")
        }
        records = {"tau_bench.types": {"Action": _Fields, "Task": _Fields}}
        with make_importable(Path(root), _PACKAGES, records):
            tools = importlib.import_module("tau_bench.envs.retail.tools").ALL_TOOLS
            module = importlib.import_module(f"tau_bench.envs.retail.tasks_{split}")
        rows = next(value for name, value in vars(module).items() if name.startswith("TASKS"))
        policy = (folder / "wiki.md").read_text(encoding="utf-8").strip()
        tasks = [_task(index, task) for index, task in enumerate(rows)]
        operations = [_operation(tool) for tool in tools]
    except Exception as error:  # modules of the checkout are programs
        raise DataError(f"{folder} cannot be read: {error_line(error)}") from error

    def database() -> Database:
        return {name: json.loads(text) for name, text in tables.items()}

    return Domain(policy, operations, tasks, database, eval_only=split != "train")


class _Fields:
    """Replacement for the two record types of tau-bench."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields


def _task(index: int, task: _Fields) -> ServiceTask:
    instruction = str(task.fields["instruction"])
    return ServiceTask(
        name=f"{index}-{task.fields['user_id']}",
        instruction=instruction,
        request=instruction,
        facts={},
        actions=[
            (action.fields["name"], action.fields["kwargs"])
            for action in task.fields["actions"]
            if action.fields["name"] != _RESPOND  # a message, which tau-bench does not require
        ],
        outputs=[str(output) for output in task.fields["outputs"]],
    )


def _operation(tool: Any) -> Operation:
    about = tool.get_info()["function"]

    def act(database: Database, **arguments: Any) -> str:
        try:
            return str(tool.invoke(data=database, **arguments))
        except Exception as error:  # as in tau-bench, the assistant sees the error of a tool
            raise OperationRefused(error_line(error)) from error

    return Operation(
        about["name"],
        about["description"],
        {"properties": {}, **about["parameters"]},
        act,
        ends=about["name"] == "transfer_to_human_agents",
    )
