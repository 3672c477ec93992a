"""The script that measures environments, and that the pages hold what it would write."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

import gem_core
from gem_core.sandbox import self_check
from tests.docs.blocks import ROOT


def load(name: str) -> ModuleType:
    """A script of the folder tools."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tables = load("env_tables")


NEEDS_BM25S = pytest.mark.skipif(
    importlib.util.find_spec("bm25s") is None, reason="webshop.md needs the extra 'search'"
)
NEEDS_PILLOW = pytest.mark.skipif(
    importlib.util.find_spec("PIL") is None, reason="vision.md needs the extra 'vision'"
)
NEEDS_MCP = pytest.mark.skipif(
    importlib.util.find_spec("mcp") is None, reason="databases.md needs the extra 'mcp'"
)
NEEDS_NAMESPACE = pytest.mark.skipif(
    not self_check()["namespace"].available, reason="terminal.md needs level 'namespace'"
)
PAGES = [
    ("games.md", "games.jsonl"),
    pytest.param("webshop.md", "webshop.jsonl", marks=NEEDS_BM25S),
    pytest.param("vision.md", "vision.jsonl", marks=NEEDS_PILLOW),
    pytest.param("databases.md", "databases.jsonl", marks=NEEDS_MCP),
    pytest.param("terminal.md", "terminal.jsonl", marks=NEEDS_NAMESPACE),
    *((f"{page}.md", "datasets.jsonl") for page in ("datasets", "math", "logic", "qa", "code")),
]


@pytest.mark.parametrize(("page", "records"), PAGES)
def test_a_page_holds_the_tables_of_its_records(page: str, records: str) -> None:
    """After a change of an id, an argument or a docstring: `python tools/env_tables.py fill ...`."""
    text = (ROOT / "docs" / "envs" / page).read_text()
    assert tables.fill(text, tables.read(ROOT / "docs" / "results" / records)) == text


def test_every_game_was_measured() -> None:
    records = tables.read(ROOT / "docs" / "results" / "games.jsonl")
    assert set(gem_core.list_envs("game:*")) <= set(records)
    assert min(record["episodes"] for record in records.values()) >= 100


def test_measure_appends_what_is_missing(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    tables.measure("game:TowerofHanoi-v0-*", out, 3)
    first = out.read_text()
    tables.measure("game:TowerofHanoi-v0-*", out, 3)
    assert out.read_text() == first
    tables.measure("game:TowerofHanoi-v0-easy", out, 4)
    assert json.loads(out.read_text().splitlines()[-1])["episodes"] == 4
    easy = tables.read(out)["game:TowerofHanoi-v0-easy"]
    assert easy["oracle"] == {"return": 1.0, "success": 1.0, "turns": 7.0}
    assert easy["random"]["return"] < 1.0


def test_fill_replaces_only_what_is_marked(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    tables.measure("game:TowerofHanoi-v0-easy", out, 1)
    page = "a\n<!-- table: game:TowerofHanoi-v0-easy -->\nold\n<!-- end -->\nb\n"
    filled = tables.fill(page, tables.read(out))
    assert filled.startswith("a\n<!-- table")
    assert filled.endswith("<!-- end -->\nb\n")
    assert "old" not in filled
    assert "| `game:TowerofHanoi-v0-easy` | `num_disks=3, max_turns=10` | 1 | 1.000 (1.000), 7.0 | " in filled
    assert ", 1 episodes |" in filled
    assert tables.fill(filled, tables.read(out)) == filled
    assert "No such mark" in tables.fill("No such mark", {})
