"""Checks of arguments: accepted values, and the uniform format of messages."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gem_core._util.checks import check_choice, check_int, check_names, check_number
from gem_core.errors import ConfigError
from gem_envs._base import check_bool


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: check_int("k", 0, 1), "k=0: expected a whole number of at least 1"),
        (lambda: check_int("k", 6, 1, 5), "k=6: expected a whole number from 1 to 5"),
        (lambda: check_int("k", 6, high=5), "k=6: expected a whole number of at most 5"),
        (lambda: check_int("k", True), "k=True: expected a whole number"),
        (lambda: check_int("k", 1.0), "k=1.0: expected a whole number"),
        (lambda: check_int("k", "1"), "k='1': expected a whole number"),
        (lambda: check_int("k", None), "k=None: expected a whole number"),
        (lambda: check_int("k", 0, 1, optional=True), "k=0: expected a whole number of at least 1, or None"),
        (lambda: check_number("gamma", 1.2, 0, 1), "gamma=1.2: expected a number from 0 to 1"),
        (lambda: check_number("gamma", True, 0, 1), "gamma=True: expected a number from 0 to 1"),
        (lambda: check_number("s", 0, above=0), "s=0: expected a number above 0"),
        (lambda: check_number("s", 9, above=0, high=8), "s=9: expected a number above 0 and up to 8"),
        (lambda: check_number("s", math.nan, 0), "s=nan: expected a finite number of at least 0"),
        (lambda: check_number("s", math.inf), "s=inf: expected a finite number"),
        (lambda: check_number("s", "1", optional=True), "s='1': expected a number, or None"),
        (lambda: check_bool("raw", 1), "raw=1: expected True or False"),
        (lambda: check_choice("mode", "c", ["a", "b"]), "mode='c': expected a or b"),
        (lambda: check_choice("mode", "c", ["a", "b"], optional=True), "mode='c': expected a or b, or None"),
        (lambda: check_names(["gama"], ["gamma", "lam"]), "unknown option 'gama'. Did you mean gamma? Available: gamma, lam"),  # noqa: E501
        (lambda: check_names(["k"], [], owner="rloo", prefix="adv."), "unknown option 'adv.k' of rloo. Available: none"),  # noqa: E501
        (lambda: check_names([3], ["k"]), "unknown option '3'. Available: k"),
    ],
)  # fmt: skip
def test_rejections_and_their_messages(check: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check()
    assert str(caught.value) == message


def test_results_are_returned() -> None:
    assert check_int("k", 1, 1, 1) == 1
    assert type(check_int("k", np.int64(3), 1)) is int
    assert check_int("k", None, 1, optional=True) is None
    assert check_number("gamma", 0, 0, 1) == 0
    assert check_number("gamma", np.float64(0.5), above=0, high=0.5) == 0.5
    assert check_number("gamma", None, above=0, optional=True) is None
    assert check_bool("raw", False) is False
    assert check_choice("mode", "a", ("a", "b")) == "a"
    assert check_choice("mode", None, ("a", "b"), optional=True) is None
    check_names([], ["k"])


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(ConfigError) as caught:
        check_int("k", "x" * 10_000)
    assert len(str(caught.value)) < 300
