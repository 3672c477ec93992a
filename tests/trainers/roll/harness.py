"""Runs ROLL's own agentic pipeline on a CPU and records everything that it consumed.

ROLL is the checkout in ROLL_HOME, with its own scheduler, router, workers, FSDP actor and weight sync; the
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

from tests.trainers.processes import (
    ROOT,
    SPIES,
    SPY_ENTRY_POINTS,
    Run,
    metadata_folder,
    run_to_the_end,
    short_folder,
)

CPU = Path(__file__).resolve().parent / "cpu"
HOME = os.environ.get("ROLL_HOME", "")
TIMEOUT = 900

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "HYDRA_FULL_ERROR": "1",
}


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
    spy, configs = folder / "spy", folder / "configs"
    for made in (spy, configs):
        made.mkdir(parents=True, exist_ok=True)
    shutil.copy(CPU / "base.yaml", configs)
    (configs / "run.yaml").write_text(json.dumps({"defaults": ["base", "_self_"], **config}))
    metadata = metadata_folder(folder / "metadata", {"gem_roll_tests-0": SPY_ENTRY_POINTS})
    path = [str(metadata), str(CPU), str(SPIES), str(ROOT), HOME]
    path += filter(None, [os.environ.get("PYTHONPATH")])
    env = {
        key: value for key, value in os.environ.items() if key not in ("RAY_ADDRESS", "CUDA_VISIBLE_DEVICES")
    }
    env |= ENVIRONMENT | {
        "GEM_SPY": str(spy),
        "GEM_MODEL": str(model),
        "PYTHONPATH": os.pathsep.join(path),
        "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]),
        "ROLL_LOG_DIR": str(folder / "logs"),
    }
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
