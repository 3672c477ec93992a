"""Every name in the tables that trace a reward, a seed, and a token id exists in the code."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

MODULES = (
    "gem_core._core",
    "gem_core.tasks",
    "gem_core.rollout",
    "gem_core.rollout._pool",
    "gem_core.rollout._rows",
    "gem_core.rollout._runner",
    "gem_core.rollout._trajectory",
    "gem_core.rollout._estimator_inputs",
    "gem_core.advantages",
    "gem_core.advantages._batch",
    "gem_lab._engines.sampling",
    "gem_lab.train._config",
    "gem_lab.train._batches",
    "gem_lab.train._rollouts",
    "gem_lab.train._trainer",
)
PAGE = Path(__file__).parents[2] / "docs" / "design.md"


def cells() -> list[str]:
    """Return the cells of the second and the third column of the tables, without their headings."""
    section = PAGE.read_text(encoding="utf-8").split("## From reward to gradient")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    found = [cell.strip() for row in rows if len(row) == 3 for cell in row[1:]]
    return [cell for cell in found if "`" in cell]


@functools.cache
def modules() -> list[Any]:
    return [importlib.import_module(name) for name in MODULES]


def find(path: str) -> Any:
    """Return what a dotted name means: an attribute of a module, or of a class or module in one of them.

    An attribute that only instances have is looked up among the annotations and the names in ``__init__``.
    """
    first, *rest = path.split(".")
    candidates = [module for module in modules() if module.__name__.endswith((f".{first}", f"._{first}"))]
    candidates += [getattr(module, first) for module in modules() if hasattr(module, first)]
    for value in candidates:
        for name in rest:
            if hasattr(value, name):
                value = getattr(value, name)
            elif name in attributes_of(value):
                value = name
            else:
                break
        else:
            return value
    raise LookupError(f"{path} is not in gem_core")


def attributes_of(cls: Any) -> set[str]:
    annotated = {name for base in inspect.getmro(cls) for name in inspect.get_annotations(base)}
    start = cls.__init__
    return annotated | set(start.__code__.co_names if isinstance(start, FunctionType) else ())


def check(cell: str) -> None:
    names = re.findall(r"`([^`]+)`", cell)
    if match := re.fullmatch(r"`(\w+)` in `([\w.]+)`", cell):
        code = inspect.unwrap(find(match[2])).__code__
        assert match[1] in code.co_varnames + code.co_cellvars, f"{match[2]} has no variable {match[1]}"
        return
    for name in names:
        key = re.fullmatch(r'([\w.]+)\["(\w+)"\]', name)
        if key:
            assert key[2] in attributes_of(find(key[1])), name
        else:
            find(name)


@pytest.mark.parametrize("cell", cells())
def test_a_name_in_the_tables_exists(cell: str) -> None:
    pytest.importorskip("torch")
    check(cell)


@pytest.mark.parametrize(
    "wrong", ["`Turn.rewart`", "`run_episodes`", "`loss` in `Learner.learn`", '`TaskRow["sede"]`']
)
def test_a_wrong_name_is_noticed(wrong: str) -> None:
    pytest.importorskip("torch")
    with pytest.raises((LookupError, AssertionError)):
        check(wrong)
