"""Runs ROLL's own agentic pipeline on a CPU and records everything that it consumed.

ROLL is the checkout in ROLL_HOME, with its own scheduler, router, workers, FSDP actor, and weight sync; the
engine in ``cpu/roll_workers.py`` replaces vLLM.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.trainers.processes import Run, run_environment, run_to_the_end, short_folder

CPU = Path(__file__).resolve().parent / "cpu"
HOME = os.environ.get("ROLL_HOME", "")
TIMEOUT = 900


def run_roll(
    folder: Path, model: Path, config: Mapping[str, Any], *, quiet: bool = False, timeout: float = TIMEOUT
) -> Run:
    """Run the pipeline in `folder` until it ends; `config` overrides ``cpu/base.yaml``.

    Args:
        folder: Working folder.
        model: Folder of the model.
        config: Overrides of the YAML.
        quiet: Whether to omit the record of the engine's answers.
        timeout: Time limit in seconds.
    """
    configs = folder / "configs"
    configs.mkdir(parents=True, exist_ok=True)
    shutil.copy(CPU / "base.yaml", configs)
    (configs / "run.yaml").write_text(json.dumps({"defaults": ["base", "_self_"], **config}))
    variables = {"GEM_MODEL": str(model), "ROLL_LOG_DIR": str(folder / "logs")}
    env = run_environment(folder, CPU, variables=variables, last=HOME)
    if quiet:
        env["GEM_ENGINE_QUIET"] = "1"
    launcher_folder = os.path.realpath(Path(HOME) / "examples")
    with short_folder() as ray_folder:
        command = [
            sys.executable, str(CPU / "roll_run.py"), ray_folder,
            "--config_path", os.path.relpath(os.path.realpath(configs), launcher_folder),
            "--config_name", "run",
        ]  # fmt: skip
        return run_to_the_end(command, folder=folder, env=env, timeout=timeout)


def metrics_of(run: Run) -> list[dict[str, float]]:
    """Return ROLL's metrics, one dict per step."""
    return [json.loads(line) for line in (run.spy / "metrics.jsonl").read_text().splitlines()]
