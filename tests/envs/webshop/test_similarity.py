from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem_envs._webshop.similarity import common_length, ratio, token_set_ratio


def longest_common(one: str, other: str) -> int:
    """Compute the length with the textbook's table."""
    table = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i, a in enumerate(one, 1):
        for j, b in enumerate(other, 1):
            longer = max(table[i - 1][j], table[i][j - 1])
            table[i][j] = table[i - 1][j - 1] + 1 if a == b else longer
    return table[-1][-1]


@given(st.text("abc ", max_size=40), st.text("abc ", max_size=40))
def test_the_common_length_matches_the_table(one, other):
    assert common_length(one, other) == longest_common(one, other)


@given(st.text(max_size=30), st.text(max_size=30))
def test_ratios_are_symmetric_and_within_bounds(one, other):
    for measure in (ratio, token_set_ratio):
        assert 0 <= measure(one, other) <= 100
        assert measure(one, other) == pytest.approx(measure(other, one))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("red", "red", 100),
        ("Red Shoe", "shoe, red!", 100),
        ("cool powder snow", "powder snow", 100),  # one contains all words of the other
        ("essential oils", "essential oil", 96.3),
        ("tea tree", "tea bag", 60.0),
        ("navy blue", "sky blue", 70.6),
        ("", "red", 0),
        ("!!", "!!", 0),
    ],
)
def test_phrases(one, other, expected):
    assert token_set_ratio(one, other) == pytest.approx(expected, abs=0.1)
