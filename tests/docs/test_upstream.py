"""The page about the trainers' own estimators contains the tables of their entries and records."""

from __future__ import annotations

import pytest

from tests.trainers.upstream.entries import ENTRIES, VERSIONS, entries
from tests.trainers.upstream.tables import PAGE, fill, read


def test_the_page_is_drawn_from_entries_and_records() -> None:
    """After changing an entry or a record, run `python -m tests.trainers.upstream draw`."""
    text = PAGE.read_text(encoding="utf-8")
    assert fill(text) == text
    assert all(f"`{entry.name}`" in text for entry in ENTRIES)


@pytest.mark.parametrize("trainer", VERSIONS)
def test_the_recorded_verdicts_follow_from_the_definitions(trainer: str) -> None:
    verdicts = {line["estimator"]: line["verdict"] for line in read(trainer)[1]}
    expected = {entry.id: entry.verdict for entry in entries(trainer) if entry.verdict}
    assert {name: verdicts[name] for name in expected} == expected
