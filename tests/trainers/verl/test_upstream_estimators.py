"""verl's own estimators compared with ours, and in the exam."""

from __future__ import annotations

import pytest
from verl.trainer.ppo import core_algos

from tests.trainers.upstream.check import check_current, check_entry
from tests.trainers.upstream.entries import Entry, entries
from tests.trainers.upstream.exam import check_verdicts
from tests.trainers.verl.upstream import CALLS

ENTRIES = entries("verl")


def test_the_table_names_functions_of_this_version() -> None:
    check_current("verl")


def test_the_table_lists_every_estimator() -> None:
    assert {entry.name.partition(",")[0] for entry in ENTRIES} == {
        e.value for e in core_algos.AdvantageEstimator
    }
    for entry in ENTRIES:
        function = core_algos.get_adv_estimator_fn(entry.name.partition(",")[0])
        assert entry.where.endswith(f": {function.__name__}")


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry.ours], ids=lambda entry: entry.name)
def test_equal_with_the_changes_of_the_table(entry: Entry) -> None:
    check_entry(entry, CALLS[entry.name])


def test_verdicts_of_the_reduced_exam() -> None:
    check_verdicts("verl", CALLS)
