"""The tests of the environments only need gem-llm; the others need ROLL's checkout in ROLL_HOME."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("gem", reason="needs gem-llm; `nox -s roll` has it")
HOME = os.environ.get("ROLL_HOME", "")
WITHOUT_ROLL = {"test_env.py", "test_tasks.py"}

if HOME and HOME not in sys.path:
    sys.path.insert(0, HOME)
os.environ.setdefault("ROLL_LOG_DIR", tempfile.mkdtemp(prefix="gem-roll-logs-"))  # ROLL logs on import
collect_ignore = (
    [] if HOME else [p.name for p in Path(__file__).parent.glob("test_*.py") if p.name not in WITHOUT_ROLL]
)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a temporary folder, because reading a config of ROLL creates log folders."""
    monkeypatch.chdir(tmp_path)
