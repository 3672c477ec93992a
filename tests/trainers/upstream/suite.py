"""The tests of a trainer's own estimators: the same for every trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from tests.trainers.upstream.check import Call, check_current, check_entry
from tests.trainers.upstream.entries import Entry, entries
from tests.trainers.upstream.exam import check_verdicts


def estimator_tests(
    trainer: str, calls: Mapping[str, Call]
) -> tuple[Callable[[], None], Callable[[Entry], None], Callable[[], None]]:
    """Return three tests: of the functions in the table, of their equality with ours, and of the exam.

    Args:
        trainer: Name of the trainer.
        calls: The trainer's estimators, by the name of their entry in the table.
    """
    ours = [entry for entry in entries(trainer) if entry.ours]

    def test_the_table_names_functions_of_this_version() -> None:
        check_current(trainer)

    @pytest.mark.parametrize("entry", ours, ids=lambda entry: entry.name)
    def test_equal_with_the_changes_of_the_table(entry: Entry) -> None:
        check_entry(entry, calls[entry.name])

    def test_verdicts_of_the_reduced_exam() -> None:
        check_verdicts(trainer, calls)

    return (
        test_the_table_names_functions_of_this_version,
        test_equal_with_the_changes_of_the_table,
        test_verdicts_of_the_reduced_exam,
    )
