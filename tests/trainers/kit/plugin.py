"""A plugin package with a data file, for the functions of the kit that read one."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from gem_core.trainers import SupportedTrainer

_numbers = itertools.count()


def plugin_with(
    file: str, tables: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> SupportedTrainer:
    """Return a trainer, with a plugin package in `tmp_path` that has this JSON file."""
    package = tmp_path / f"gem_pytest{next(_numbers)}"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / file).write_text(json.dumps(tables))
    monkeypatch.syspath_prepend(tmp_path)
    return SupportedTrainer("Pytest", package.name, "pytest", versions=">=1,<99", hook="")
