"""Each test that the page of unnoticed changes names for a dropped thing exists."""

from __future__ import annotations

import re

import pytest

from tests.docs.blocks import ROOT

TRAINERS = ("verl", "OpenRLHF", "TRL", "Oat", "RL2", "ROLL")
PAGE = (ROOT / "docs" / "results" / "unnoticed.md").read_text(encoding="utf-8")
HEADER, *ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.partition("## What a dropped thing fails")[2].splitlines()
    if line.startswith("|") and not line.startswith("|---")
]


def test_each_trainer_has_a_column() -> None:
    assert HEADER[1:] == [*TRAINERS]
    assert len(ROWS) > 12
    assert len({row[0] for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_named_tests_exist(row: list[str]) -> None:
    for trainer, cell in zip(TRAINERS, row[1:], strict=True):
        tests = re.findall(r"`([a-z_]+)::([a-z0-9_]+)`", cell)
        assert tests or cell in ("n/a", "not tried"), f"{trainer}: {cell}"
        for file, name in tests:
            path = ROOT / "tests" / "trainers" / trainer.lower() / f"test_{file}.py"
            assert re.search(rf"^def test_{name}", path.read_text(encoding="utf-8"), re.MULTILINE), name
