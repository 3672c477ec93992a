"""The folder of an evaluation: its configuration, the finished episodes, and the summary.

``config.json`` is written first, ``episodes.jsonl`` grows by one line per finished episode, and
``summary.json`` is computed from the two. A killed run leaves only complete lines behind and resumes
after the last one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gem_core._util.files import write_atomically
from gem_core._util.foreign_json import read_json_file
from gem_core._util.urls import without_secrets
from gem_core.errors import ConfigError, TraceError
from gem_core.rollout import Episode, read_traces
from gem_core.tasks import EnvChoice
from gem_lab.eval._config import RAISABLE, EvalConfig

CONFIG, EPISODES, SUMMARY = "config.json", "episodes.jsonl", "summary.json"

SCHEMA_VERSION = 1
"""Version of the configuration and of the summary; episodes have their own."""
_CONFIG = {"model": str, "env": list, "gem_core": str, "episodes": int, "group_size": int}
_SUMMARY = {"envs": dict, "overall": dict}
"""Fields that a file must have, with their types."""

Key = tuple[str, int, int]
"""Environment, task number, and sample number."""


def begin(config: EvalConfig, folder: Path) -> dict[Key, Episode]:
    """Record the configuration, or check it against the recorded one if the run is resumed or extended.

    Returns:
        The finished episodes.

    Raises:
        ConfigError: The folder holds an evaluation with other options, or something other than an evaluation.
        TraceError: The episodes of the folder cannot be read.
    """
    done: dict[Key, Episode] = {}
    if (folder / CONFIG).exists():
        recorded = read_config(folder)
        done = finished(folder)
        # A run without a finished episode, such as one whose endpoint never answered, is replaced.
        if done and (changed := config.differences(recorded)):
            raise ConfigError(
                f"{folder} holds an evaluation with other options ({'; '.join(changed)}); use the same "
                "options (episodes and group_size may be raised), or choose another folder"
            )
        if done and all(recorded.get(name) == getattr(config, name) for name in RAISABLE):
            return done
        (folder / SUMMARY).unlink(missing_ok=True)  # it would describe only part of the run
    elif (folder / EPISODES).exists():
        raise ConfigError(f"{folder} holds {EPISODES} without {CONFIG}; choose another folder")
    identity = {**config.identity(), "base_url": config.base_url and without_secrets(config.base_url)}
    write_config(folder, identity)
    return done


def finished(folder: str | Path) -> dict[Key, Episode]:
    """Return the episodes of a folder, ordered by environment, task, and sample.

    Raises:
        TraceError: A line is damaged, or does not belong to an evaluation.
        OSError: The folder cannot be read.
    """
    path = Path(folder) / EPISODES
    episodes: dict[Key, Episode] = {}
    for episode in read_traces(path) if path.exists() else ():
        try:
            metadata = episode.metadata
            key = (str(metadata["env"]), int(metadata["task"]), int(metadata["sample"]))
        except (KeyError, TypeError, ValueError):
            raise TraceError(f"{path} holds an episode that does not belong to an evaluation") from None
        if key in episodes:
            raise TraceError(f"{path} holds task {key[1]}, sample {key[2]} of {key[0]} twice")
        episodes[key] = episode
    envs = read_config(folder)["env"] if episodes else []
    order = {EnvChoice.parse(text).label: place for place, text in enumerate(envs)}
    return dict(sorted(episodes.items(), key=lambda item: (order.get(item[0][0], 0), item[0][1:])))


def read_config(folder: str | Path) -> dict[str, Any]:
    """Return the configuration of the run in the folder.

    Raises:
        ConfigError: The folder holds no run, or the file is damaged or has a different schema version.
    """
    config = _read(Path(folder) / CONFIG, _CONFIG)
    if not all(isinstance(env, str) for env in config["env"]):
        raise ConfigError(f"{Path(folder) / CONFIG} is damaged: env is not a list of texts")
    return config


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """Write the configuration atomically."""
    _write(folder / CONFIG, config)


def read_summary(folder: str | Path) -> dict[str, Any]:
    """Return the summary of a finished run.

    Raises:
        ConfigError: There is no summary, or the file is damaged or has a different schema version.
    """
    return _read(Path(folder) / SUMMARY, _SUMMARY)


def write_summary(folder: Path, summary: Mapping[str, Any]) -> None:
    """Write the summary atomically."""
    _write(folder / SUMMARY, summary)


def _write(path: Path, value: Mapping[str, Any]) -> None:
    write_atomically(path, [json.dumps({**value, "schema_version": SCHEMA_VERSION}, indent=2) + "\n"])


def _read(path: Path, expected: Mapping[str, type]) -> dict[str, Any]:
    try:
        value = read_json_file(path)
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist: `gem-core eval` has not been run there") from None
    except ValueError as error:
        raise ConfigError(f"{path} is damaged: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{path} is damaged: expected an object")
    if (version := value.pop("schema_version", SCHEMA_VERSION)) != SCHEMA_VERSION:
        raise ConfigError(
            f"{path} has the schema version {version!r}, and this version of gem-core reads "
            f"{SCHEMA_VERSION}; use the version that wrote it"
        )
    if missing := [name for name, kind in expected.items() if not isinstance(value.get(name), kind)]:
        lacks = ", ".join(missing)
        raise ConfigError(f"{path} is damaged or was not written by `gem-core eval`: it lacks {lacks}")
    return value
