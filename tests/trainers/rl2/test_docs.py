"""RL2's own config parser and our checks accept the commands of the documentation and the example."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gem_rl2 import _ENV_PATH
from gem_rl2._options import check_config, plays_gem, prepare
from gem_rl2._rows import write
from gem_rl2._upstream import find

from gem_core.errors import ConfigError
from gem_core.tasks import EnvChoice, make_tasks
from tests.docs.blocks import ROOT, command_lines
from tests.trainers.example import load_example
from tests.trainers.rl2.configs import compose_config

PAGE = (ROOT / "docs/trainers/rl2.md").read_text()


def check(words: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Check the config like the started program."""
    monkeypatch.chdir(folder)
    for name in ("train", "test"):
        if not (folder / f"{name}.jsonl").exists():
            write(make_tasks([EnvChoice("game:GuessTheNumber-v0")], 128), f"{name}.jsonl")
    config, upstream = compose_config(*words[words.index("-m") + 2 :]), find()
    prepare(config, upstream)
    assert plays_gem(config)
    check_config(config, upstream)
    return config


def is_for_index(words: list[str]) -> bool:
    return any(word.startswith("train_data.") for word in words)


@pytest.mark.parametrize(
    "words",
    [
        words
        for words in command_lines("docs/trainers/rl2.md", "torchrun")
        if is_for_index(words) is find().is_index
    ],
)
def test_a_documented_command_is_a_config(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(words, tmp_path, monkeypatch)


def test_the_environment_file_names_the_launcher() -> None:
    spec = importlib.util.spec_from_file_location("custom_module", _ENV_PATH)  # as in RL2
    assert spec is not None
    assert spec.loader is not None
    with pytest.raises(ConfigError, match=r"start RL2 with python -m gem_rl2\.train"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_the_doctor_finds_the_hook() -> None:
    env = {key: value for key, value in os.environ.items() if key != "RL2_HOME"}
    doctor = shutil.which("gem-core", path=str(Path(sys.executable).parent))
    assert doctor is not None
    shown = subprocess.run([doctor, "doctor"], capture_output=True, text=True, env=env, check=False)
    lines = shown.stdout.splitlines()
    at = next(index for index, line in enumerate(lines) if "RL2 0.0.2" in line)
    assert lines[at].startswith("ready")
    assert next(line for line in lines[at:] if "hook: " in line).endswith("[works]")


def test_the_example_is_an_environment_and_a_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = load_example(monkeypatch, capsys)
    monkeypatch.chdir(tmp_path)
    words = shlex.split(module.train("rl2"))
    assert (tmp_path / "doubling.jsonl").is_file()
    if not find().is_index:
        assert check(words, tmp_path, monkeypatch).gem.modules == ["own_env"]
