"""The table of estimators and trainers says what the plugins declare."""

from __future__ import annotations

from typing import Any

import pytest

from gem_core.advantages import get_estimator
from gem_core.advantages._declaration import NEEDS
from gem_core.errors import ConfigError
from gem_core.trainers import read_estimator
from gem_lab import load_trainer
from gem_lab._discovery import trainer_names
from tests.advantages.builtin import BUILTIN
from tests.docs.blocks import ROOT
from tests.docs.test_env_tables import load

tool: Any = load("estimator_table")
PAGE = ROOT / "docs" / "concepts" / "estimators.md"


def test_the_table_is_current() -> None:
    text = PAGE.read_text("utf-8")
    new = [line for line in tool.fill(text).splitlines() if line not in text.splitlines()]
    command = "python tools/estimator_table.py docs/concepts/estimators.md"
    assert not new, f"run `{command}`: it writes {new[0]}"
    assert tool.fill(text) == text, f"run `{command}`"


def test_every_estimator_has_a_row_of_its_definition() -> None:
    lines = (ROOT / "docs" / "concepts" / "rebn.md").read_text("utf-8").splitlines()
    for name in BUILTIN:
        assert any(line.startswith(f"| `{name}` | ") for line in lines), (
            f"write a row for `{name}` in the table of docs/concepts/rebn.md, section 'Other estimators': "
            "its advantage of a turn, needs, source, and when to use it"
        )


def test_every_need_is_described() -> None:
    lines = PAGE.read_text("utf-8").splitlines()
    for need, meaning in NEEDS.items():
        row = f"| `{need}` | {meaning} |"
        assert row in lines, f"write `{row}` in {PAGE.relative_to(ROOT)}, section 'Your own estimator'"


def test_a_cell_is_what_the_plugin_accepts() -> None:
    written = {
        cells[1]: cells[2:-1]
        for line in PAGE.read_text("utf-8").splitlines()
        if len(cells := [cell.strip() for cell in line.split("|")]) == 10
    }
    header = written.pop("estimator")
    by_name = {load_trainer(name).supported.name: load_trainer(name).supported for name in trainer_names()}
    assert set(header[1:]) == set(by_name)
    accepted = 0
    for label, cells in written.items():
        name, _, option = label.partition(",")
        if "`" not in cells[0] or "truncation" in name:
            continue
        options = {"statistics": option.partition('"')[2].partition('"')[0]} if option else {}
        for trainer, cell in zip(header[1:], cells[1:], strict=True):
            try:
                choice = read_estimator(cell.strip("`"), options, trainer=by_name[trainer])
            except ConfigError:
                assert cell.startswith("no `"), (label, trainer)
                with pytest.raises(ConfigError, match=f"needs {cell.split('`')[1]} "):
                    read_estimator(f"gem_{name.strip('`')}", options, trainer=by_name[trainer])
                continue
            assert choice.estimator == get_estimator(name.strip("`"))
            accepted += 1
    assert accepted > 60
