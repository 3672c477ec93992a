"""ROLL's own estimators compared with ours, and in the exam."""

from __future__ import annotations

from tests.trainers.roll.upstream import CALLS
from tests.trainers.upstream.suite import estimator_tests

(
    test_the_table_names_functions_of_this_version,
    test_equal_with_the_changes_of_the_table,
    test_verdicts_of_the_reduced_exam,
) = estimator_tests("roll", CALLS)
