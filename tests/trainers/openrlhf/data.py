"""Rows for the tests, in the format of `gem-core export --to openrlhf`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gem_openrlhf._labels import write

from gem_core._core import Split
from gem_core.tasks import EnvChoice, make_tasks


def write_rows(path: Path, envs: Sequence[str], count: int, *, split: Split = "train", seed: int = 0) -> Path:
    write(make_tasks([EnvChoice.parse(env) for env in envs], count, split=split, seed=seed), path)
    return path
