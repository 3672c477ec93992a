"""The documented table of styles in which games read moves."""

from __future__ import annotations

from tests.docs.test_env_tables import load

tool = load("parse_matrix")


def test_the_documented_table_is_what_the_games_read():
    page = tool.PAGE.read_text(encoding="utf-8")
    assert f"<!-- styles -->\n{tool.page_table()}\n<!-- end -->" in page, "python tools/parse_matrix.py"


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
