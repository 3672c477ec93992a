"""RL2's own estimators compared with ours, and in the exam."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.trainers.rl2.upstream import CALLS, session
from tests.trainers.upstream.check import check_current, check_entry
from tests.trainers.upstream.entries import Entry, entries
from tests.trainers.upstream.exam import check_verdicts

ENTRIES = entries("rl2")


@pytest.fixture(scope="module", autouse=True)
def one_process() -> Iterator[None]:
    with session():
        yield


def test_the_table_names_functions_of_this_version() -> None:
    check_current("rl2")


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry.ours], ids=lambda entry: entry.name)
def test_equal_with_the_changes_of_the_table(entry: Entry) -> None:
    check_entry(entry, CALLS[entry.name])


def test_verdicts_of_the_reduced_exam() -> None:
    check_verdicts("rl2", CALLS)
