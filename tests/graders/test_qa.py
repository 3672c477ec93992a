from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem_envs.graders.qa import _normalize, exact_match


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
        ("Ko\u0308ln", ["K\u00f6ln"], True),
        ("K\u00f6ln", ["Ko\u0308ln"], True),
        ("Beyonce\u0301", ["BEYONC\u00c9"], True),
        ("Vie\u0323\u0302t Nam", ["Vi\u1ec7t Nam"], True),
        ("\uac00", ["\u1100\u1161"], True),
        ("O\u2019Brien", ["O'Brien"], True),
        ("O\u02bcBrien", ["O\u2019Brien"], True),
        ("Rock \u2019n\u2019 Roll", ["Rock 'n' Roll"], True),
        ("\u201cHamlet\u201d", ['"Hamlet"'], True),
        ("\u00abHamlet\u00bb", ["Hamlet"], True),
        ("1939\u20131945", ["1939-1945"], True),
        ("1939\u20141945", ["1939-1945"], True),
        ("co\u2011operate", ["co-operate"], True),
        ("\u22125", ["-5"], True),
        ("Wait\u2026", ["Wait..."], True),
        ("\uff30\uff21\uff32\uff29\uff33", ["Paris"], True),
        ("\uff14\uff12", ["42"], True),
        ("\u5317\u4eac\u3002", ["\u5317\u4eac"], True),
        ("New\u00a0York", ["New York"], True),
        ("e\ufb03cient", ["efficient"], True),
        ("Stra\u00dfe", ["STRASSE"], True),
        ("\u0130stanbul", ["istanbul"], True),
        ("data\u00adbase", ["database"], True),
        ("\uff21", ["a"], True),
        ("\uff1f", ["?"], True),
        ("Koln", ["K\u00f6ln"], False),
        ("10\u00b2", ["102"], False),
        ("H\u2082O", ["HO"], False),
        ("\u00bd", ["12"], False),
        ("\u4e1c\u4eac", ["\u5317\u4eac"], False),
        ("\u2026", ["\u2013"], False),
    ],
)
def test_exact_match(answer, references, right):
    assert exact_match(answer, references) is right


@given(st.text())
def test_normalizing_twice_changes_nothing_more_than_articles(text):
    assert "  " not in _normalize(text)
    assert _normalize(text.upper().lower()) == _normalize(text.upper())
