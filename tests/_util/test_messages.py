"""Phrases of error messages."""

from __future__ import annotations

import pytest

from gem_core._util.messages import error_line, join_or, suggest, unknown


def test_an_error_becomes_one_line() -> None:
    assert error_line(ValueError("two\n  lines\t here")) == "ValueError: two lines here"
    assert error_line(KeyError("name")) == "KeyError: 'name'"
    assert error_line(TimeoutError()) == "TimeoutError"
    assert error_line(ValueError("x" * 500), 100) == ("ValueError: " + "x" * 500)[:100]


@pytest.mark.parametrize(
    ("words", "text"),
    [(["a"], "a"), (["a", "b"], "a or b"), (["a", "b", "c"], "a, b, or c"), ([], "nothing")],
)
def test_alternatives_are_joined(words: list[str], text: str) -> None:
    assert join_or(words) == text


def test_close_names_are_suggested_whatever_their_case() -> None:
    assert suggest("REBM", ["rebn", "grpo"]) == " Did you mean rebn?"
    assert suggest("rebn", ["other", "names"]) == ""
    assert (
        unknown("estimator", "rbn", ["rebn"]) == "unknown estimator 'rbn'. Did you mean rebn? Available: rebn"
    )
