"""The example environment and its command for each trainer."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from gem_lab import check_env
from tests.docs.blocks import ROOT

EXAMPLE = ROOT / "integrations/examples/own_env.py"


def load_example(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], path: Path = EXAMPLE
) -> ModuleType:
    """Import the example like a trainer's processes, check its environment, and play it."""
    spec = importlib.util.spec_from_file_location("own_env", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "own_env", module)
    spec.loader.exec_module(module)
    check_env("example:Doubling")
    module.play()
    assert capsys.readouterr().out.endswith("last reward 0.33\n")
    assert len(EXAMPLE.read_text().splitlines()) <= 240
    return module
