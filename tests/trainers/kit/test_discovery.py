"""Plugins are found by the entry points of installed packages."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from gem_core.errors import ConfigError, UnknownName, UnsupportedTrainer
from gem_core.trainers import SupportedTrainer, TrainerPlugin
from gem_core.trainers._plugin import PluginFunction, errors_in_one_line
from gem_lab import _discovery


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    """List of the only entry points, for a package on the import path."""
    (tmp_path / "gem_test_package.py").write_text("not_a_plugin = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    points: list[EntryPoint] = []
    monkeypatch.setattr(_discovery, "installed", lambda group: points)
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
    assert "mine" in _discovery.trainer_names()
    with pytest.raises(UnsupportedTrainer, match=message):
        _discovery.load_trainer("mine")
    with pytest.raises(UnknownName, match="mine"):
        _discovery.load_trainer("min")


def test_a_package_on_a_folder_that_is_added_to_the_path_is_found(tmp_path, monkeypatch):
    assert "later" not in _discovery.trainer_names()
    package = tmp_path / "later-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: later\nVersion: 1\n")
    (package / "entry_points.txt").write_text(f"[{_discovery.GROUP}]\nlater = later:TRAINER\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "later" in _discovery.trainer_names()


def test_a_hook_works_if_its_entry_point_and_modules_exist() -> None:
    def hook(entry_point: tuple[str, str] | None = None, modules: tuple[str, ...] = ()) -> str | None:
        trainer = SupportedTrainer(
            "Pytest", "gem_pytest", "pytest", versions=">=1,<99", hook="", entry_point=entry_point,
            hook_modules=modules,
        )  # fmt: skip
        return _discovery.hook_problem(trainer)

    assert hook(("pytest11", "timeout"), ("json",)) is None
    assert hook() is None
    assert "no entry point 'missing' in group 'pytest11'" in str(hook(("pytest11", "missing")))
    assert "no entry point 'timeout' in group 'other'" in str(hook(("other", "timeout")))
    assert hook(modules=("json", "no_such_a", "no_such_b")) == (
        "this version of gem-core has no no_such_a and no no_such_b yet"
    )


def test_files_that_a_command_needs_are_found_or_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gem_test_files" / "empty").mkdir(parents=True)
    (tmp_path / "gem_test_files" / "agent.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    plugin = TrainerPlugin(
        SupportedTrainer("Pytest", "gem_pytest", "pytest", versions=">=1,<99", hook=""),
        files={
            name: f"gem_test_files.{name}" for name in ("agent", "empty", "missing", "missing.at.all")
        } | {"other": "gem_no_such_package.agent"},
    )  # fmt: skip
    assert plugin.file_path("agent") == tmp_path / "gem_test_files" / "agent.py"
    for name in plugin.files.keys() - {"agent"}:
        with pytest.raises(
            ConfigError, match=f"gem_pytest: no file is installed for module '{plugin.files[name]}'"
        ):
            plugin.file_path(name)


def test_a_function_that_a_plugin_does_not_have_is_named() -> None:
    supported = SupportedTrainer("Pytest", "gem_pytest", "pytest", versions=">=1,<99", hook="")
    bare, full = (
        TrainerPlugin(supported),
        TrainerPlugin(
            supported, exporter="json:dumps", recipe_writer="json:dumps", step_recorder="json:dump",
            learning_recorder="json:load", preflight="json:loads",
        ),
    )  # fmt: skip
    functions: dict[PluginFunction, tuple[str, Any]] = {
        "exporter": ("exporter; `--to tasks`", json.dumps),
        "recipe_writer": ("recipe writer", json.dumps),
        "step_recorder": ("recorder of a step", json.dump),
        "learning_recorder": ("recorder of learning runs", json.load),
        "preflight": ("check of the trainer's arguments", json.loads),
    }
    for part, (what, function) in functions.items():
        with pytest.raises(ConfigError, match=f"gem_pytest has no {what}"):
            bare.load(part)
        assert full.load(part) is function


def test_a_plugin_of_this_process_comes_before_an_installed_one(
    package: list[EntryPoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    package.append(EntryPoint("acme", "gem_test_package:missing", "gem_core.trainers"))
    monkeypatch.setattr(_discovery, "_registered", {})
    plugin = TrainerPlugin(SupportedTrainer("Pytest", "gem_pytest", "pytest", versions=">=1,<99", hook=""))
    _discovery.register_trainer("acme", plugin)
    _discovery.register_trainer("other", plugin)
    assert _discovery.trainer_names() == ["acme", "other"]
    assert _discovery.load_trainer("acme") is plugin


def test_an_error_of_gem_is_one_line_and_a_status(capsys: pytest.CaptureFixture[str]) -> None:
    supported = SupportedTrainer("Pytest", "gem_pytest", "pytest", versions=">=1,<99", hook="")
    with errors_in_one_line(supported):
        pass
    with pytest.raises(SystemExit) as caught, errors_in_one_line(supported):
        raise ConfigError("gamma=2: expected a number from 0 to 1")
    assert caught.value.code == 2
    assert capsys.readouterr().err == "gem_pytest: gamma=2: expected a number from 0 to 1\n"
    with pytest.raises(ValueError, match="a bug"), errors_in_one_line(supported):
        raise ValueError("a bug")


def test_a_checkout_on_the_import_path_is_found_by_one_of_its_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trainer(module: str) -> SupportedTrainer:
        return SupportedTrainer(
            "Pytest", "gem_pytest", "pytest", versions=">=1,<99", hook="", checkout_module=module
        )

    (tmp_path / "gem_test_checkout" / "inner").mkdir(parents=True)
    (tmp_path / "gem_test_checkout" / "file.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    for module in ("inner", "file"):
        assert trainer(f"gem_test_checkout.{module}").source_checkout() == tmp_path
        assert trainer(f"gem_test_checkout.{module}").problem() is None
    for module in ("gem_test_checkout.other", "gem_no_such_package.file"):
        assert trainer(module).source_checkout() is None
