"""An estimator of gem_core is one decorated function, its import, its row in the docs, and its definition.

CONTRIBUTING.md lists these places. Each of the other tests of an estimator takes the names from the registry.
"""

from __future__ import annotations

import ast
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import gem_core.advantages
from gem_core.advantages import Estimator, estimator, get_estimator, list_estimators, returns
from gem_core.advantages._registry import names_in_trainer
from gem_core.trainers import read_estimator
from gem_lab import load_trainer
from gem_lab._discovery import trainer_names
from gem_lab.exam._inputs import Candidate
from gem_lab.repro import Recipe
from tests.advantages.builtin import BUILTIN

PACKAGE = Path(gem_core.advantages.__file__).parent
MODULE = "gem_core.advantages.added"


def decorated() -> Iterator[tuple[str, str]]:
    """Yield module and name of each function of the package under `@estimator`."""
    for path in sorted(PACKAGE.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef) and any(
                "estimator" in ast.unparse(d) for d in node.decorator_list
            ):
                yield path.stem, node.name


def test_every_decorated_function_is_imported_by_the_package() -> None:
    found = list(decorated())
    assert len(found) >= 15
    for module, name in found:
        line = f"from gem_core.advantages.{module} import {name}"
        assert isinstance(getattr(gem_core.advantages, name, None), Estimator), (
            f"write `{line}` in gem_core/advantages/__init__.py: without it, no trainer finds {name!r}"
        )
        assert name in gem_core.advantages.__all__, (
            f"add {name!r} to __all__ of gem_core/advantages/__init__.py"
        )
    assert sorted(name for _, name in found) == BUILTIN


@pytest.fixture
def added(own_registry: None, monkeypatch: pytest.MonkeyPatch) -> Estimator:
    """An estimator in a new module of the package."""

    def added_by_a_test(turn_rewards, *, group_ids, gamma=1.0, scale=1.0):
        return [scale * (g - g.mean()) for g in returns(turn_rewards, gamma)]

    added_by_a_test.__module__, added_by_a_test.__qualname__ = MODULE, "added_by_a_test"
    module = ModuleType(MODULE)
    monkeypatch.setitem(sys.modules, MODULE, module)
    module.added_by_a_test = estimator("returns minus the mean of their episode")(added_by_a_test)
    return module.added_by_a_test


def test_one_decorated_function_is_an_estimator_everywhere(added: Estimator) -> None:
    assert "added_by_a_test" in list_estimators()
    assert get_estimator("added_by_a_test") is added
    assert (added.needs, added.options) == (("group_ids",), ("scale",))
    assert [a.tolist() for a in added([[1.0, 0.0]], group_ids=["a"], scale=2.0)] == [[1.0, -1.0]]
    assert pickle.loads(pickle.dumps(added)) is added
    assert names_in_trainer(("grpo",))["gem_added_by_a_test"] == "added_by_a_test"
    assert Candidate.of("added_by_a_test").needs == ("group_ids",)
    recipe = {
        "env": "game:GuessTheNumber-v0",
        "model": "m",
        "estimator": "added_by_a_test",
        "group_size": 2,
    }
    assert Recipe.of(recipe).estimator == "added_by_a_test"


@pytest.mark.once
def test_every_trainer_takes_its_name(added: Estimator) -> None:
    trainers = [load_trainer(name).supported for name in trainer_names()]
    assert len(trainers) >= 6
    for trainer in trainers:
        assert read_estimator("gem_added_by_a_test", {"scale": 2.0}, trainer=trainer).estimator is added


def test_the_form_for_tensors_needs_no_declaration(added: Estimator) -> None:
    torch = pytest.importorskip("torch", reason="needs the extra 'train'")
    result = added.tensors(
        torch.tensor([[1.0, 0.0]]), torch.ones(1, 2), torch.tensor([[0, 1]]), group_ids=["a"]
    )
    assert result.advantages.tolist() == [[0.5, -0.5]]
