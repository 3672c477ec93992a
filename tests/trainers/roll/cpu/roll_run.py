"""Starts ROLL's own launcher in a private Ray cluster that assumes one GPU, for tests.

    python roll_run.py RAY_FOLDER --config_path PATH --config_name NAME

PATH is relative to the folder of the launcher, as ROLL requires.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import ray
import roll_cpu  # noqa: F401
from roll.platforms import current_platform
from roll.utils.constants import RAY_NAMESPACE
from roll.utils.tracking import BaseTracker, tracker_registry


class FileTracker(BaseTracker):  # type: ignore[misc]
    """Writes one line of JSON per step, for ``track_with: file``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._path = Path(os.environ["GEM_SPY"]) / "metrics.jsonl"

    def log(self, values: dict[str, Any], step: int | None, **kwargs: Any) -> None:
        numbers = {name: float(value) for name, value in values.items()}
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, **numbers}) + "\n")

    def finish(self) -> None:
        """Do nothing: every line is already on disk."""


def main(ray_folder: str) -> None:
    tracker_registry["file"] = FileTracker
    cluster = ray.init(
        address="local",
        num_cpus=8,  # with fewer, ROLL waits for a free CPU
        num_gpus=1,
        namespace=RAY_NAMESPACE,
        include_dashboard=False,
        object_store_memory=200_000_000,
        _temp_dir=ray_folder,
        runtime_env={"env_vars": current_platform.get_custom_env_vars()},
    )
    os.environ["RAY_ADDRESS"] = cluster.address_info["address"]  # ROLL calls `ray status`
    try:
        launcher = Path(os.environ["ROLL_HOME"]) / "examples" / "start_agentic_pipeline.py"
        runpy.run_path(str(launcher), run_name="__main__")
    finally:
        ray.shutdown()


if __name__ == "__main__":
    folder = sys.argv.pop(1)
    main(folder)
