"""verl's own estimators compared with ours, and in the exam."""

from __future__ import annotations

from verl.trainer.ppo import core_algos

from tests.trainers.upstream.entries import entries
from tests.trainers.upstream.suite import estimator_tests
from tests.trainers.verl.upstream import CALLS

ENTRIES = entries("verl")


(
    test_the_table_names_functions_of_this_version,
    test_equal_with_the_changes_of_the_table,
    test_verdicts_of_the_reduced_exam,
) = estimator_tests("verl", CALLS)


def test_the_table_lists_every_estimator() -> None:
    assert {entry.name.partition(",")[0] for entry in ENTRIES} == {
        e.value for e in core_algos.AdvantageEstimator
    }
    for entry in ENTRIES:
        function = core_algos.get_adv_estimator_fn(entry.name.partition(",")[0])
        assert entry.where.endswith(f": {function.__name__}")
