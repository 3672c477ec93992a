"""The notebooks run from top to bottom, and are stored without outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import ROOT, code_cells

NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_a_notebook_runs(path: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "__notebook__"}
    for index, code in enumerate(code_cells(path)):
        exec(compile(code, f"{path.name}, code cell {index}", "exec"), namespace)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_a_notebook_has_no_outputs(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in notebook["cells"])


def test_there_are_three_notebooks() -> None:
    assert len(NOTEBOOKS) == 3
