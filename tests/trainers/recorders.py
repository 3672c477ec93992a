"""Recorders of our trainers for `gem-core consistency --run`; they run tests, so the wheel omits them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from gem_core.errors import ConfigError
from gem_lab import load_trainer, register_trainer
from gem_lab.consistency._learning import REFERENCE
from tests.consistency.scenario import Scenario
from tests.trainers.learning import TRAINERS
from tests.trainers.shared import ROOT


def register() -> None:
    """Register our plugins with their recorders; they take precedence over the installed plugins."""
    for name in TRAINERS:
        if name != REFERENCE:
            recorders = {
                "step_recorder": partial(record_step, name),
                "learning_recorder": partial(record_learning, name),
            }
            register_trainer(name, replace(load_trainer(name), **recorders))


def record_step(trainer: str, folder: Path) -> None:
    """Run the shared step in a trainer, as one of its tests."""
    scenario = Scenario(Path(os.environ.get("GEM_CONSISTENCY") or ROOT / "runs" / "consistency"))
    test = f"tests/trainers/{trainer}/test_consistency.py"
    run(trainer, "-m", "pytest", "-q", "-W", "ignore::DeprecationWarning", test)
    if folder.resolve() != scenario.records.resolve():
        folder.mkdir(parents=True, exist_ok=True)
        for record in [*scenario.records.glob("core*.json"), scenario.records / f"{trainer}.json"]:
            shutil.copy2(record, folder)


def record_learning(trainer: str, path: Path) -> None:
    """Run the missing learning runs of the reference trainer and of a trainer."""
    for name in (REFERENCE, trainer):
        run(trainer, "-m", "tests.trainers.learning", "--trainer", name, "--out", str(path.resolve()))


def run(trainer: str, *options: str) -> None:
    """Run Python in this checkout for a trainer.

    Raises:
        ConfigError: The run failed.
    """
    environment = {**os.environ, f"GEM_CORE_{trainer.upper()}": "1"}
    if subprocess.run([sys.executable, *options], cwd=ROOT, env=environment, check=False).returncode:
        raise ConfigError(f"{trainer} failed; see above")
