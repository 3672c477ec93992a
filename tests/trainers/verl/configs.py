"""Composes verl's own config with overrides, like its command line."""

from __future__ import annotations

import pickle
from functools import cache
from pathlib import Path
from typing import Any

import verl.trainer
from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser

FOLDER = Path(verl.trainer.__file__).parent / "config"


def verl_config(*overrides: str) -> Any:
    """Return verl's config with overrides of values; to replace a whole section use Hydra's `compose`."""
    config = pickle.loads(_default())  # a copy, seven times as fast as `deepcopy`
    # What `compose` does with the overrides, ten times as fast because verl's files are read only once.
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    ConfigLoaderImpl._apply_overrides_to_config(parsed, config)
    return config


@cache
def _default() -> bytes:
    with initialize_config_dir(str(FOLDER), version_base=None):
        return pickle.dumps(compose("ppo_trainer"))
