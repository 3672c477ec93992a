"""The page about the trainers' own estimators contains the tables of their entries and records."""

from __future__ import annotations

from tests.trainers.upstream.entries import ENTRIES
from tests.trainers.upstream.tables import PAGE, fill


def test_the_page_is_drawn_from_entries_and_records() -> None:
    """After changing an entry or a record, run `python -m tests.trainers.upstream draw`."""
    text = PAGE.read_text(encoding="utf-8")
    assert fill(text) == text
    assert all(f"`{entry.name}`" in text for entry in ENTRIES)
