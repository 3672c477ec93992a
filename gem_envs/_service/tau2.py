"""The official retail tasks of tau2-bench from a checkout: `load_tau2`.

tau2-bench is the successor of tau-bench, with corrected tasks. Nothing of it is included. Its tools are
Python modules of the checkout and are run: use only a checkout that you trust.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from gem_core._util.checks import check_choice
from gem_core._util.foreign_json import read_json_file
from gem_core._util.messages import error_line
from gem_core.errors import DataError
from gem_envs._service.checkout import make_importable
from gem_envs._service.domain import Database, Domain, Operation, OperationRefused, ServiceTask

SPLITS = ("base", "train", "test")

_DEFAULT_BASIS = ("DB", "COMMUNICATE")

_PACKAGES = ("tau2", "tau2.domains", "tau2.domains.retail", "tau2.environment", "tau2.utils")
_ARGUMENT = re.compile(r"^\s+(\w+):\s*(.*?)(?=^\s+\w+:|\Z)", re.MULTILINE | re.DOTALL)


def is_tau2(root: str) -> bool:
    """Return whether a folder is a checkout of tau2-bench."""
    return _data(root).is_dir()


@lru_cache(maxsize=4)
def load_tau2(root: str, split: str = "test") -> Domain:
    """Return the retail service of a checkout.

    The ``reward_basis`` of a task decides, as in tau2-bench (``tau2/evaluator/evaluator.py``): with "DB" the
    database must equal the one after the reference actions, with "COMMUNICATE" the assistant must say what
    the task lists as ``communicate_info``; a task without a basis has both. A ``communicate_info`` outside
    the basis is the metric ``mentioned``. The assertions in natural language ("NL_ASSERTION") need a judge
    and are left out: ``info["left_out"]`` of such an episode names them.

    Args:
        root: Folder of the checkout, with ``data/tau2/domains/retail`` in it.
        split: "test", "train", or "base", which is both.

    Raises:
        ConfigError: The split is unknown.
        DataError: The checkout cannot be read, or a task cannot be graded.
    """
    check_choice("split", split, SPLITS)
    folder = _data(root)
    try:
        tasks = read_json_file(folder / "tasks.json")
        chosen = set(read_json_file(folder / "split_tasks.json")[split])
        policy = (folder / "policy.md").read_text(encoding="utf-8").strip()
        with make_importable(Path(root) / "src", _PACKAGES, _replaced(Path(root) / "data")):
            module = importlib.import_module("tau2.domains.retail.tools")
        tools, model = module.RetailTools, module.RetailDB
        initial = _dump(model.model_validate_json((folder / "db.json").read_text(encoding="utf-8")))
        operations = [
            _operation(tools, model, name, method)
            for name, method in inspect.getmembers(tools, inspect.isfunction)
            if hasattr(method, "changes_state")
        ]
        domain_tasks = [_task(task) for task in tasks if task["id"] in chosen]
    except Exception as error:  # modules of the checkout are programs
        raise DataError(f"{folder} cannot be read: {error_line(error)}") from error
    text = json.dumps(initial)
    return Domain(policy, operations, domain_tasks, lambda: json.loads(text), eval_only=split != "train")


def _data(root: str) -> Path:
    return Path(root) / "data" / "tau2" / "domains" / "retail"


def _replaced(data: Path) -> dict[str, dict[str, object]]:
    """Return replacements for the tools' imports from the rest of the checkout, which needs many packages."""
    pydantic: Any = importlib.import_module("pydantic")
    forbid = pydantic.ConfigDict(extra="forbid")
    return {
        "tau2.utils.utils": {"DATA_DIR": data},
        "tau2.environment.db": {"DB": type("DB", (pydantic.BaseModel,), {"model_config": forbid})},
        "tau2.environment.toolkit": {"ToolKitBase": _ToolKit, "ToolType": _ToolType, "is_tool": _is_tool},
    }


class _ToolType:
    READ, WRITE, THINK, GENERIC = "read", "write", "think", "generic"


class _ToolKit:
    def __init__(self, db: Any) -> None:
        self.db = db


def _is_tool(tool_type: str = "read", mutates_state: bool | None = None) -> Callable[[Any], Any]:
    def mark(method: Any) -> Any:
        method.changes_state = tool_type == "write" if mutates_state is None else mutates_state
        return method

    return mark


def _task(task: dict[str, Any]) -> ServiceTask:
    if task.get("initial_state"):
        raise ValueError(f"task {task['id']} has an initial state, which is not supported")
    criteria = task.get("evaluation_criteria") or {}
    basis = _basis(task["id"], criteria)
    info = [str(text) for text in criteria.get("communicate_info") or ()]
    judged = "NL_ASSERTION" in basis and criteria.get("nl_assertions")
    scenario = task["user_scenario"]["instructions"]
    texts = [scenario] if isinstance(scenario, str) else [
        scenario.get(key) for key in ("reason_for_call", "known_info", "unknown_info", "task_instructions")
    ]  # fmt: skip
    instruction = "\n".join([*(text for text in (task["user_scenario"].get("persona"), *texts) if text)])
    return ServiceTask(
        name=str(task["id"]),
        instruction=instruction,
        request=instruction,
        facts={},
        actions=[(action["name"], action["arguments"]) for action in criteria.get("actions") or ()],
        outputs=info if "COMMUNICATE" in basis else [],
        mentions=[] if "COMMUNICATE" in basis else info,
        compares_database="DB" in basis,
        left_out=["NL_ASSERTION"] if judged else [],
    )


def _basis(name: object, criteria: dict[str, Any]) -> set[str]:
    """Return the criteria that decide a task.

    Raises:
        ValueError: Something decides that cannot be checked here, or nothing that can.
    """
    basis = {str(part) for part in criteria.get("reward_basis", _DEFAULT_BASIS) or ()}
    if unknown := sorted(basis - {"DB", "COMMUNICATE", "NL_ASSERTION"}):
        raise ValueError(f"the reward_basis of task {name} has {', '.join(unknown)}, which is not supported")
    if others := [one["name"] for one in criteria.get("actions") or () if one.get("requestor") == "user"]:
        raise ValueError(f"task {name} has actions of the user ({others[0]}), which are not supported")
    checked = "DB" in basis and criteria.get("actions") is not None
    if not checked and not ("COMMUNICATE" in basis and criteria.get("communicate_info")):
        raise ValueError(
            f"the reward_basis of task {name} is {', '.join(sorted(basis)) or 'empty'}: expected DB with "
            "actions or COMMUNICATE with communicate_info, because nothing else can be checked"
        )
    return basis


def _operation(tools: Any, model: Any, name: str, method: Any) -> Operation:
    def act(database: Database, **arguments: Any) -> str:
        rows = model.model_validate(database)
        try:
            result = getattr(tools(rows), name)(**arguments)
        except Exception as error:  # as in tau2-bench, the assistant sees the error of a tool
            raise OperationRefused(error_line(error)) from error
        if method.changes_state:
            database.clear()
            database.update(_dump(rows))
        return result if isinstance(result, str) else json.dumps(_plain(result))

    about, _, arguments = inspect.cleandoc(method.__doc__ or "").partition("\nArgs:\n")
    return Operation(
        name,
        about.strip(),
        _schema(method, arguments.partition("\nReturns:")[0]),
        act,
        ends=name == "transfer_to_human_agents",
    )


def _schema(method: Any, described: str) -> dict[str, Any]:
    """Return the JSON schema of the arguments, from the annotations and the docstring."""
    pydantic: Any = importlib.import_module("pydantic")
    texts = {name: " ".join(text.split()) for name, text in _ARGUMENT.findall(described)}
    fields = {
        name: (
            parameter.annotation,
            pydantic.Field(
                ... if parameter.default is parameter.empty else parameter.default,
                description=texts.get(name),
            ),
        )
        for name, parameter in list(inspect.signature(method).parameters.items())[1:]
    }
    schema: dict[str, Any] = pydantic.create_model("Arguments", **fields).model_json_schema()
    return {
        "type": "object",
        "properties": schema.get("properties", {}),
        "required": schema.get("required", []),
    }


def _dump(rows: Any) -> Database:
    database: Database = rows.model_dump(mode="json")
    return database


def _plain(result: Any) -> Any:
    """Return a result of a tool as data for JSON."""
    if hasattr(result, "model_dump"):
        return result.model_dump(mode="json")
    if isinstance(result, list):
        return [_plain(one) for one in result]
    return {name: _plain(one) for name, one in result.items()} if isinstance(result, dict) else result
