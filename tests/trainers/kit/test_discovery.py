"""Plugins are found by the entry points of installed packages."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from gem_core.errors import UnknownName, UnsupportedTrainer
from gem_core.trainers import discovery
from gem_core.trainers.plugin import SupportedTrainer


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    """List of the only entry points, for a package on the import path."""
    (tmp_path / "gem_test_package.py").write_text("not_a_plugin = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    points: list[EntryPoint] = []
    monkeypatch.setattr(discovery, "_entry_points", lambda: points)
    return points


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            ["gem_test_package:not_a_plugin"],
            "gem_test_package:not_a_plugin is a int: expected a .*TrainerPlugin",
        ),
        (["gem_test_package:missing"], "gem_test_package:missing cannot be imported: AttributeError"),
        (["gem_test_package:a", "other:b"], "several packages register trainer 'mine'"),
    ],
)
def test_a_wrong_entry_point_is_named(values: list[str], message: str, package: list[EntryPoint]) -> None:
    package += [EntryPoint("mine", value, "gem_core.trainers") for value in values]
    assert "mine" in discovery.trainer_names()
    with pytest.raises(UnsupportedTrainer, match=message):
        discovery.load_trainer("mine")
    with pytest.raises(UnknownName, match="mine"):
        discovery.load_trainer("min")


def test_a_hook_works_if_its_entry_point_and_modules_exist() -> None:
    def hook(entry_point: tuple[str, str] | None = None, modules: tuple[str, ...] = ()) -> str | None:
        trainer = SupportedTrainer(
            "Pytest", "gem_pytest", "pytest", versions=">=1,<99", hook="", entry_point=entry_point,
            hook_modules=modules,
        )  # fmt: skip
        return trainer.hook_problem()

    assert hook(("pytest11", "timeout"), ("json",)) is None
    assert hook() is None
    assert "no entry point 'missing' in group 'pytest11'" in str(hook(("pytest11", "missing")))
    assert hook(modules=("json", "no_such_a", "no_such_b")) == (
        "this version of gem-core has no no_such_a and no no_such_b yet"
    )
