from __future__ import annotations

from gem_lab._engines.patience import Patience


class Clock:
    """Fake clock."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_pauses_double_and_an_endpoint_may_ask_for_its_own():
    patience = Patience(1e6, clock=Clock())
    pauses = [patience.pause(attempt, 100.0) for attempt in range(1, 10)]
    for attempt, pause in enumerate(pauses):
        longest = min(30.0, 0.5 * 2**attempt)
        assert longest / 2 <= pause <= longest
    assert patience.pause(1, 100.0, retry_after=7.0) == 7.0
    assert patience.pause(1, 100.0, retry_after=1e9) == 120.0
    assert patience.repeated == 11


def test_waiting_ends_when_no_request_is_answered():
    clock = Clock()
    patience = Patience(10, clock=clock)
    clock.now += 9
    assert patience.pause(3, 100.0) is not None
    patience.succeeded()  # another call succeeded
    clock.now += 9
    assert patience.pause(4, 100.0) is not None
    assert patience.pause(3, 118.0) is not None  # a call that has just failed for the first time
    clock.now += 2
    assert patience.pause(5, 100.0) is None


def test_an_endpoint_is_not_down_before_a_call_has_failed_three_times():
    """Each attempt may take longer than the whole silence: an answer, a rate limit, a requested pause."""
    clock = Clock()
    patience = Patience(60, clock=clock)
    clock.now += 1e4
    outcomes = []
    for attempt in (1, 2, 3):
        outcomes.append(patience.pause(attempt, 100.0 + 1e4) is None)
        clock.now += 61
    assert outcomes == [False, False, True]


def test_a_call_that_always_fails_ends_although_others_succeed():
    patience = Patience(1e9)
    assert [patience.pause(n, 0.0) is None for n in (1, 19, 20)] == [False, False, True]
