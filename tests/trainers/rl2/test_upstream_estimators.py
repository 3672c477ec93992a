"""RL2's own estimators compared with ours, and in the exam."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.trainers.rl2.upstream import CALLS, session
from tests.trainers.upstream.suite import estimator_tests


@pytest.fixture(scope="module", autouse=True)
def one_process() -> Iterator[None]:
    with session():
        yield


(
    test_the_table_names_functions_of_this_version,
    test_equal_with_the_changes_of_the_table,
    test_verdicts_of_the_reduced_exam,
) = estimator_tests("rl2", CALLS)
