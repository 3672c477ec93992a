"""TRL's own estimators compared with ours, and in the exam."""

from __future__ import annotations

import pytest

from tests.trainers.trl.upstream import CALLS
from tests.trainers.upstream.check import check_current, check_entry
from tests.trainers.upstream.entries import Entry, entries
from tests.trainers.upstream.exam import check_verdicts

ENTRIES = entries("trl")


def test_the_table_names_functions_of_this_version() -> None:
    check_current("trl")


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry.ours], ids=lambda entry: entry.name)
def test_equal_with_the_changes_of_the_table(entry: Entry) -> None:
    check_entry(entry, CALLS[entry.name])


def test_verdicts_of_the_reduced_exam() -> None:
    check_verdicts("trl", CALLS)
