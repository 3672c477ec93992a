"""The grades of OpenRLHF's estimators, and of gem-core's in OpenRLHF, on exact batches."""

from __future__ import annotations

import pytest
from gem_openrlhf import TRAINER

from gem_lab._conform import grade_estimators
from tests.trainers.conform import recorded
from tests.trainers.openrlhf import correction

pytestmark = pytest.mark.skipif(not correction.has_levels(), reason="recorded with OpenRLHF 0.11.2")
ONE_SIZE = dict.fromkeys(("uneven groups", "alone in its group"), "refused")
"""OpenRLHF groups samples by position, so its groups have one size."""
BY_POSITION = {
    **dict.fromkeys(("rewritten", "turn rows", "rows in turns", "compaction", "two compactions"), "wrong"),
    **dict.fromkeys(
        ("rewritten, longer turns", "sub-agent", "sub-agent with rewards", "rejected attempt"), "refused"
    ),
    "failed episode": "wrong",
}
"""A row is a sample for OpenRLHF, so rows of other episodes are in its groups, if the number of rows fits."""


def test_the_grades() -> None:
    grades = grade_estimators(TRAINER.load("conform")())
    assert grades == recorded("openrlhf")
    others = {
        name: {batch: found for batch, found in of.items() if found != "right"} for name, of in grades.items()
    }
    for name in ("OpenRLHF dr_grpo", "OpenRLHF rloo"):
        assert others.pop(name) == ONE_SIZE | BY_POSITION
    assert others == dict.fromkeys(("gem_dr_grpo in OpenRLHF", "gem_rloo in OpenRLHF"), ONE_SIZE)
