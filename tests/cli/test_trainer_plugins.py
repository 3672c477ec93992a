"""A third-party plugin, the stub in tests/toy_trainer, appears in every command about trainers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gem_lab import main
from tests.repro.recipes import PLAIN

SOURCE = Path(__file__).resolve().parents[1] / "toy_trainer"
OURS = ["gem_oat", "gem_openrlhf", "gem_rl2", "gem_roll", "gem_trl", "gem_verl"]

Command = Callable[..., Any]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the installed stub; pip builds it without the network."""
    pytest.importorskip("setuptools", minversion="70.1", reason="builds the toy trainer package")
    pytest.importorskip("pip")
    source = tmp_path_factory.mktemp("source") / "toy"
    shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__"))
    target = tmp_path_factory.mktemp("target")
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--quiet", "--target", str(target)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True, timeout=120)
    return target


@pytest.fixture
def gem_core(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Command]:
    """Function that runs a command in this process, in a new folder, and returns its output."""
    monkeypatch.syspath_prepend(installed)
    monkeypatch.chdir(tmp_path)

    def run(*argv: str, code: int = 0) -> Any:
        capsys.readouterr()
        assert main(argv) == code
        return capsys.readouterr()

    yield run
    for name in [name for name in sys.modules if name.partition(".")[0] == "toy_trainer"]:
        del sys.modules[name]


def test_doctor_lists_it_and_says_in_one_line_what_is_broken(gem_core: Command) -> None:
    trainers = {
        each["trainer"]: each for each in json.loads(gem_core("doctor", "--json", code=1).out)["trainers"]
    }
    assert [each["plugin"] for each in trainers.values() if each["plugin"] in OURS] == OURS
    toy = trainers["toy"]
    assert (toy["name"], toy["installed"], toy["status"], toy["problems"]) == ("Toy", "1.2", "ready", [])
    assert trainers["broken"]["status"] == trainers["wrong"]["status"] == "broken"
    shown = gem_core("doctor", code=1).out
    assert "ready   toy: Toy 1.2 (supported: >=1,<2), plugin toy_trainer" in shown
    assert (
        "toy_trainer.broken:TRAINER cannot be imported: RuntimeError: this plugin fails on import\n" in shown
    )
    assert (
        "toy_trainer.export:write is a function: expected a gem_core.trainers._plugin.TrainerPlugin" in shown
    )


def test_export_writes_its_format(gem_core: Command, tmp_path: Path) -> None:
    argv = ["export", "--env", "game:GuessTheNumber-v0-easy", "--num", "2", "--out", "rows", "--to"]
    gem_core(*argv, "toy")
    lines = (tmp_path / "rows").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["game:GuessTheNumber-v0-easy"] * 2
    assert "broken" in gem_core(*argv, "broken", code=2).err
    assert "unknown trainer 'toi'. Did you mean toy?" in gem_core(*argv, "toi", code=2).err
    assert "unknown trainer 'task'. Did you mean tasks?" in gem_core(*argv, "task", code=2).err


def test_repro_writes_its_script(gem_core: Command, tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_text(json.dumps(PLAIN))
    argv = ["repro", "recipe.json", "--out", "out"]
    assert gem_core(*argv, "--to", "toy").out == "toy: out/toy\n  Toy trains nothing.\n"
    assert "--gamma 0.9" in (tmp_path / "out" / "toy" / "run.sh").read_text()
    every = json.loads(gem_core(*argv, "--json", code=1).out)
    assert {"reference", "toy", "verl"} < set(every)
    assert "cannot be imported" in every["broken"]["rejected"]
    (tmp_path / "recipe.json").write_text(json.dumps({**PLAIN, "system_prompt": "Win."}))
    assert (
        "Toy cannot run this recipe: system_prompt: Toy has none"
        in gem_core(*argv, "--to", "toy", code=2).err
    )


def test_consistency_runs_its_recorders(gem_core: Command, tmp_path: Path) -> None:
    assert "holds no records" in gem_core("consistency", "--trainers", "toy", code=2).err
    shown = gem_core("consistency", "--trainers", "toy", "--run").out
    assert shown.splitlines()[-1].split("  ")[0] == "toy"
    assert "equal (2.0e-07)" in shown
    assert (tmp_path / "runs/consistency/records/toy.json").exists()
    rows = gem_core("consistency").out.splitlines()[2:]
    assert "toy" in [row.split()[0] for row in rows]
    shown = gem_core("consistency", "--level", "4", "--run", "--records", "runs.jsonl").out
    assert "equivalent (+0.020" in shown


def test_path_prints_its_file(gem_core: Command, installed: Path) -> None:
    path = str(installed / "toy_trainer" / "agent.py")
    assert gem_core("path", "toy-agent").out == f"{path}\n"
    every = gem_core("path")
    assert ["toy-agent", path] in [line.split() for line in every.out.splitlines()]
    assert "gem-core: broken: toy_trainer.broken:TRAINER cannot be imported" in every.err


def test_a_plugin_is_imported_only_when_requested(installed: Path) -> None:
    code = (
        "import sys, gem_core; from gem_lab import main; main(['--help']); main(['repro', '--help'])\n"
        "from gem_lab._discovery import trainer_names; names = trainer_names()\n"
        "print(names, [name for name in sys.modules if name.partition('.')[0] in {*%r, 'toy_trainer'}])"
    )
    path = os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code % OURS], env={**os.environ, "PYTHONPATH": path}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    names = ["broken", "oat", "openrlhf", "rl2", "roll", "toy", "trl", "verl", "wrong"]
    assert done.stdout.splitlines()[-1] == f"{names} []"
