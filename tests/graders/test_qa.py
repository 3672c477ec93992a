from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem_core.graders.qa import exact_match, normalize


@pytest.mark.parametrize(
    ("answer", "references", "right"),
    [
        ("Paris", ["Paris"], True),
        (" paris. ", ["Paris"], True),
        ("The Beatles", ["Beatles"], True),
        ("an apple a day", ["apple day"], True),
        ("U.S.A.", ["usa"], True),
        ("Berlin", ["Paris", "Berlin"], True),
        ("42", ["42"], True),
        ("Zoë", ["zoë"], True),
        ("A", ["A"], True),
        ("?", ["?"], True),
        ("London", ["Paris"], False),
        ("Paris France", ["Paris"], False),
        ("", ["Paris"], False),
        ("", [""], False),
        ("?", ["!"], False),
        ("the", ["a"], False),
        ("43", ["42"], False),
        ("Paris", [], False),
        ("theatre", ["atre"], False),
    ],
)
def test_exact_match(answer, references, right):
    assert exact_match(answer, references) is right


@given(st.text())
def test_normalizing_twice_changes_nothing_more_than_articles(text):
    assert "  " not in normalize(text)
    assert normalize(text.upper().lower()) == normalize(text.upper())
