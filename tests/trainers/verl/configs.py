"""Composes verl's own config with overrides, like its command line."""

from __future__ import annotations

import copy
from functools import lru_cache
from pathlib import Path
from typing import Any

import verl.trainer
from hydra import compose, initialize_config_dir

FOLDER = Path(verl.trainer.__file__).parent / "config"


def verl_config(*overrides: str) -> Any:
    return copy.deepcopy(_composed(overrides))


@lru_cache
def _composed(overrides: tuple[str, ...]) -> Any:
    with initialize_config_dir(str(FOLDER), version_base=None):
        return compose("ppo_trainer", list(overrides))
