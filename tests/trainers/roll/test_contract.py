"""The frozen contract, from which other tests make fakes of ROLL, is that of the checkout."""

from __future__ import annotations

from pathlib import Path

from tests.trainers import contract
from tests.trainers.roll import harness


def test_the_checkout_keeps_the_frozen_contract() -> None:
    assert contract.drift("roll", Path(harness.HOME)) == []
