"""The plugin packages can be imported without their trainer and say clearly what is missing."""

from __future__ import annotations

import importlib
import sys
import warnings
from importlib import metadata
from pathlib import Path

import pytest

from gem_core.errors import UnsupportedTrainer
from gem_core.trainers import SupportedTrainer, lazy_exports

PACKAGES = ["gem_verl", "gem_openrlhf", "gem_oat", "gem_rl2", "gem_roll", "gem_trl"]


def pretend_installed(monkeypatch: pytest.MonkeyPatch, version: str | None) -> None:
    def fake(name: str) -> str:
        if version is None:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(metadata, "version", fake)


@pytest.mark.parametrize("package", PACKAGES)
def test_missing_trainer_is_a_clear_error(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_installed(monkeypatch, None)
    monkeypatch.delenv("ROLL_HOME", raising=False)
    monkeypatch.delenv("RL2_HOME", raising=False)
    module = importlib.import_module(package)
    with pytest.raises(UnsupportedTrainer, match=rf"{package}: .* is not installed"):
        module._SUPPORTED.require()
    if package != "gem_rl2":  # it exports no names
        with pytest.raises(UnsupportedTrainer, match="is not installed"):
            module.AnythingPublic  # noqa: B018


@pytest.mark.parametrize(
    ("version", "supported"),
    [("0.8.9", False), ("0.9", True), ("0.9.1", True), ("0.9.0rc1", True), ("0.10", True), ("1.0", True)],
)
def test_version_range(version: str, supported: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_installed(monkeypatch, version)
    trainer = SupportedTrainer("verl", "gem_verl", "verl", versions=">=0.9,<0.10", hook="")
    problem = trainer.problem()
    if supported:
        assert problem is None
    else:
        assert problem == f"verl {version} is not supported; supported versions: >=0.9,<0.10"


def test_the_message_about_an_older_verl_names_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    verl = importlib.import_module("gem_verl")._SUPPORTED
    pretend_installed(monkeypatch, "0.8.0")
    assert f"{verl.versions} (0.8.0 has no v1 trainer to register a mode with" in verl.problem()
    pretend_installed(monkeypatch, "0.6.1")
    assert "(0.6.1 has no rollout.agent.agent_loop_manager_class and no reward per token" in verl.problem()
    pretend_installed(monkeypatch, "0.8.9")
    assert f"{verl.versions} (0.8.9 has no v1 trainer to register a mode with" in verl.problem()


def test_a_newer_version_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = SupportedTrainer("verl", "gem_newer", "verl", versions=">=0.9,<0.10", hook="")
    pretend_installed(monkeypatch, "0.9.3")
    assert trainer.untested() is None
    pretend_installed(monkeypatch, "0.10.1")
    with pytest.warns(UserWarning, match=r"gem_newer: verl 0\.10\.1 is newer than the tested versions"):
        trainer.require()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer.require()


def test_source_checkout_counts_as_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend_installed(monkeypatch, None)
    roll = importlib.import_module("gem_roll")._SUPPORTED
    monkeypatch.setenv("ROLL_HOME", str(tmp_path))
    assert roll.problem() is None
    monkeypatch.setenv("ROLL_HOME", str(tmp_path / "absent"))
    assert "is not a folder" in roll.problem()
    monkeypatch.delenv("ROLL_HOME")
    assert "pip install" not in roll.problem()  # that name on the index is another project
    assert roll.problem() == "ROLL is not installed: set ROLL_HOME to a source checkout"


def test_a_source_checkout_is_first_on_the_import_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    roll, before = importlib.import_module("gem_roll")._SUPPORTED, [*sys.path]
    monkeypatch.setattr(sys, "path", [*before])
    monkeypatch.setenv("ROLL_HOME", "")
    roll.import_checkout_first()
    assert sys.path == before
    monkeypatch.setenv("ROLL_HOME", str(tmp_path))
    for _ in range(2):
        roll.import_checkout_first()
        assert sys.path == [str(tmp_path), *before]


def test_verl_plugin_logs_its_own_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pretend_installed(monkeypatch, "0.7.1")
    plugin = importlib.import_module("gem_verl.plugin")
    caplog.clear()
    importlib.reload(plugin)
    assert "verl 0.7.1 is not supported" in caplog.text


def test_a_trainer_that_lacks_what_a_module_imports_is_a_clear_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "gem_lacking"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "hook.py").write_text("from json import not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    pretend_installed(monkeypatch, "0.2.1")
    trainer = SupportedTrainer("Acme", "gem_lacking", "acme", versions=">=0.2,<0.3", hook="")
    get, _ = lazy_exports(trainer, {"hook": ["Hook"]})
    message = r"Acme 0\.2\.1 cannot be used: ImportError: cannot import name 'not_there'.* acme>=0\.2,<0\.3"
    with pytest.raises(UnsupportedTrainer, match=message):
        get("Hook")
