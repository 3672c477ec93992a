"""Episodes counted by source."""

from __future__ import annotations

import pytest

from gem_core.errors import EnvError
from gem_core.rollout.sources import SourceLedger

LOST = [("game", "KeyError: 'score'"), ("game", "timeout")]


def test_each_source_is_counted() -> None:
    metrics = SourceLedger().close_step("step 1", ["gsm8k", "game", "gsm8k"], [("game", "boom")], filled=2)
    assert metrics == {
        "gem/filled": 2.0,
        "gem/played/game": 1.0,
        "gem/failed/game": 1.0,
        "gem/played/gsm8k": 2.0,
        "gem/failed/gsm8k": 0.0,
    }


def test_a_source_that_was_never_played_ends_the_run_at_once() -> None:
    with pytest.raises(EnvError, match=r"step 1: all 2 episodes of game are lost .*KeyError: 'score'"):
        SourceLedger().close_step("step 1", ["gsm8k"], LOST)


def test_a_source_that_was_played_before_may_fail_for_two_steps() -> None:
    ledger = SourceLedger()
    ledger.close_step("step 1", ["gsm8k", "game"], [])
    for step in (2, 3):
        assert ledger.close_step(f"step {step}", ["gsm8k"], LOST)["gem/failed/game"] == 2
    ledger.close_step("step 4", ["game"], LOST)  # one episode is enough to start the count again
    ledger.close_step("step 5", ["gsm8k"], [])  # a step without rows of the source does not count
    for step in (6, 7):
        ledger.close_step(f"step {step}", ["gsm8k"], LOST)
    ledger.close_step("step 8", ["gsm8k"], [])
    with pytest.raises(EnvError, match=r"step 9: all 2 episodes of game are lost .for 3 steps in a row"):
        ledger.close_step("step 9", ["gsm8k"], LOST)


def test_a_step_without_rows_of_a_lost_source_goes_on() -> None:
    ledger = SourceLedger()
    ledger.close_step("step 1", ["game"], [])
    for step in (2, 3):
        ledger.close_step(f"step {step}", [], LOST)
    assert ledger.close_step("step 4", ["gsm8k"], [])["gem/played/gsm8k"] == 1
