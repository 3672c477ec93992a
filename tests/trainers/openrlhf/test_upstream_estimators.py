"""OpenRLHF's own estimators compared with ours, and in the exam."""

from __future__ import annotations

import ast
import inspect
import textwrap

import pytest
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker

from tests.trainers.openrlhf.upstream import CALLS
from tests.trainers.upstream.check import check_current, check_entry
from tests.trainers.upstream.entries import Entry, entries
from tests.trainers.upstream.exam import check_verdicts

ENTRIES = entries("openrlhf")


def test_the_table_names_functions_of_this_version() -> None:
    check_current("openrlhf")


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


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry.ours], ids=lambda entry: entry.name)
def test_equal_with_the_changes_of_the_table(entry: Entry) -> None:
    check_entry(entry, CALLS[entry.name])


def test_verdicts_of_the_reduced_exam() -> None:
    check_verdicts("openrlhf", CALLS)
