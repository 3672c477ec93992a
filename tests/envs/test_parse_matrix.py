"""The documented table of styles in which games read moves."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]
_SPEC = importlib.util.spec_from_file_location("parse_matrix", ROOT / "tools" / "parse_matrix.py")
tool = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(tool)


def test_the_documented_table_is_what_the_games_read():
    table = tool.MARKED.search(tool.PAGE.read_text(encoding="utf-8"))[0]
    assert tool.page_table() in table, "python tools/parse_matrix.py"


def test_every_style_with_one_meaning_is_read_and_no_other():
    matrix = tool.matrix()
    rejected = {name for name, games in matrix.items() if not any(games.values())}
    assert len(matrix) >= 66
    assert all(len(set(games.values())) == 1 for games in matrix.values())  # all games agree
    assert rejected == {
        "an initial for a direction", "numbers in words", "digits without separators",
        "two moves in one box", "a sentence in the box", "JSON in the box", "the column before the row",
        "no braces", "an unclosed box", "an answer tag", "no box",
    }  # fmt: skip
