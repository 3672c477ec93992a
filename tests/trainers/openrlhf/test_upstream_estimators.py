"""OpenRLHF's own estimators compared with ours, and in the exam."""

from __future__ import annotations

import ast
import inspect
import textwrap

from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker

from tests.trainers.openrlhf.upstream import CALLS
from tests.trainers.upstream.entries import entries
from tests.trainers.upstream.suite import estimator_tests

ENTRIES = entries("openrlhf")


(
    test_the_table_names_functions_of_this_version,
    test_equal_with_the_changes_of_the_table,
    test_verdicts_of_the_reduced_exam,
) = estimator_tests("openrlhf", CALLS)


def test_the_table_lists_every_estimator() -> None:
    function = RemoteExperienceMaker.compute_advantages_and_returns
    names = {
        node.value
        for compare in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function))))
        if isinstance(compare, ast.Compare)
        for node in ast.walk(compare)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert names == {entry.name for entry in ENTRIES}
