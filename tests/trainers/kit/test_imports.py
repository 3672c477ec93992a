"""Actions on a module that a process may import later or never."""

from __future__ import annotations

import importlib
import inspect
import sys
import types
from pathlib import Path
from types import ModuleType

import pytest

from gem_core.errors import ConfigError
from gem_core.trainers import SupportedTrainer, after_import
from gem_core.trainers._imports import replaced, until_call


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a module that has not been imported."""
    (tmp_path / "gem_test_late.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "gem_test_late", raising=False)
    return "gem_test_late"


def test_the_action_comes_after_the_modules_own_code(module: str) -> None:
    seen: list[int] = []

    def action(loaded: ModuleType) -> None:
        seen.append(loaded.value)
        loaded.value = 2

    after_import(module, action)
    assert not seen
    assert importlib.import_module(module).value == 2
    assert seen == [1]
    after_import(module, action)
    assert seen == [1, 2]


def test_all_of_several_actions_occur(module: str) -> None:
    seen: list[str] = []
    after_import(module, lambda _: seen.append("first"))
    after_import(module, lambda _: seen.append("second"))
    loaded = importlib.import_module(module)
    assert sorted(seen) == ["first", "second"]
    assert loaded.value == 1
    importlib.reload(loaded)
    assert len(seen) == 2


def test_what_an_action_raises_comes_out_of_the_import(module: str) -> None:
    def action(loaded: ModuleType) -> None:
        raise ValueError("no such name")

    after_import(module, action)
    with pytest.raises(ValueError, match="no such name"):
        importlib.import_module(module)


def test_a_replacement_ends_with_its_block() -> None:
    owner = ModuleType("owner")
    owner.value = 1  # type: ignore[attr-defined]

    def fail() -> None:
        with replaced(owner, "value", 2):
            raise KeyError(owner.value)

    with pytest.raises(KeyError, match="2"):
        fail()
    assert owner.value == 1


def test_a_block_runs_until_it_calls_a_function() -> None:
    owner, steps = types.SimpleNamespace(start=lambda gpus: steps.append("started")), []
    with until_call(owner, "start") as calls:
        steps.append("checked")
        assert list(inspect.signature(owner.start).parameters) == ["gpus"]  # as a trainer may check
        try:
            owner.start(8)
        except Exception:  # a trainer's handler
            steps.append("caught")
        steps.append("continued")
    assert calls == [((8,), {})]
    owner.start(8)
    assert steps == ["checked", "started"]


def test_errors_before_the_call_are_raised() -> None:
    owner = types.SimpleNamespace(start=print)
    with pytest.raises(ConfigError), until_call(owner, "start"):
        raise ConfigError("gamma")
    assert owner.start is print


def test_a_module_of_a_plugin_is_imported_after_that_of_the_trainer(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "gem_test_plugin.py").write_text(f"import {module}\nseen = {module}.value\n")
    (tmp_path / "gem_test_broken.py").write_text("raise ValueError('no such name')\n")
    for name in ("gem_test_plugin", "gem_test_broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    plugin = importlib.import_module("gem_verl.plugin")
    monkeypatch.setattr(SupportedTrainer, "problem", lambda _: None)
    for name in ("gem_test_plugin", "gem_test_broken"):
        monkeypatch.setattr(plugin, "_AFTER", {module: name})
        plugin.activate()
    assert "gem_test_plugin" not in sys.modules
    importlib.import_module(module)
    assert sys.modules["gem_test_plugin"].seen == 1
    assert "gem_test_broken cannot be imported" in caplog.text
    assert "no such name" in caplog.text
