"""Reads a YAML like ROLL's launcher: hydra composes it, and dacite makes an `AgenticConfig`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dacite import from_dict
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from roll.pipeline.agentic.agentic_config import AgenticConfig

from tests.trainers.roll import harness


def read_config(path: Path) -> Any:
    """Return the config in a YAML file."""
    with initialize_config_dir(str(path.parent.resolve()), version_base=None):
        given = compose(path.stem)
    return from_dict(data_class=AgenticConfig, data=OmegaConf.to_container(given, resolve=True))


def small_config(folder: Path, changed: Mapping[str, Any]) -> Any:
    """Return the config of ``cpu/base.yaml`` with changes."""
    shutil.copy(harness.CPU / "base.yaml", folder)
    path = folder / "changed.yaml"
    path.write_text(json.dumps({"defaults": ["base", "_self_"], **changed}))
    return read_config(path)
