"""The grades of OpenRLHF's estimators, and of gem-core's in OpenRLHF, on exact batches."""

from __future__ import annotations

import pytest
from gem_openrlhf import TRAINER

from tests.trainers.conform import ONE_SIZE, ROWS_AS_SAMPLES, other_than_right
from tests.trainers.openrlhf import correction

pytestmark = pytest.mark.skipif(not correction.has_levels(), reason="recorded with OpenRLHF 0.11.2")


def test_the_grades() -> None:
    others = other_than_right(TRAINER, "openrlhf", "OpenRLHF")
    for name in ("OpenRLHF dr_grpo", "OpenRLHF rloo"):
        assert others.pop(name) == ONE_SIZE | ROWS_AS_SAMPLES | {"failed episode": "wrong"}
    assert others == {"gem-core": ONE_SIZE}
