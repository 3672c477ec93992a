"""The tables of options in the documentation say what the code declares."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from gem_core._util.options import list_options
from gem_core.trainers import PluginOptions, RowOptions
from gem_lab.eval import EvalConfig
from gem_lab.repro import Recipe
from gem_lab.train import TrainConfig
from tests.docs.blocks import ROOT


def tool() -> Any:
    spec = importlib.util.spec_from_file_location("option_tables", ROOT / "tools" / "option_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGES = [
    page for page in sorted((ROOT / "docs").rglob("*.md")) if "<!-- options: " in page.read_text("utf-8")
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_the_tables_are_current(page: Path) -> None:
    text = page.read_text("utf-8")
    assert "| `" in text.partition("<!-- options: ")[2].partition("<!-- end -->")[0]
    assert tool().fill(text) == text, "run `python tools/option_tables.py`"


def test_every_trainer_has_a_table() -> None:
    trainers = {"verl", "openrlhf", "trl", "oat", "rl2", "roll", "reproduce", "train", "eval"}
    assert {page.stem for page in PAGES} == trainers


def test_an_option_has_one_description() -> None:
    """Only the words for `model`, `env`, and a default that a program explains itself may differ."""
    own = {"model", "env", "seed", "learning_rate", "max_total_tokens", "max_tokens_per_turn", "concurrency"}
    described: dict[str, set[str]] = {}
    for config in (TrainConfig, EvalConfig, Recipe, PluginOptions, RowOptions):
        for option in list_options(config):
            described.setdefault(option.name, set()).add(option.help)
    assert len(described) > 60
    assert {name for name, texts in described.items() if len(texts) > 1} <= own
