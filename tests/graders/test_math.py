from __future__ import annotations

import importlib.util
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gem_core.errors import MissingDependency
from gem_envs.graders import _symbolic
from gem_envs.graders._latex import read
from gem_envs.graders.math import MathVerdict, grade, judge
from gem_lab._checker.texts import long_texts, nasty_texts
from tests.graders.pairs import PAIRS
from tests.graders.styles import STYLED

ONLY_SYMBOLIC = {r"\int_0^1 2x\,dx"}
"""Right answers of the labeled pairs that the built-in comparison cannot read."""
has_math_verify = importlib.util.find_spec("math_verify") is not None


def test_there_are_enough_pairs_of_both_kinds():
    assert len(PAIRS) >= 300
    assert len(set(PAIRS)) == len(PAIRS)
    assert sum(not right for *_, right in PAIRS) >= 100


@pytest.mark.parametrize(("answer", "reference", "right"), PAIRS)
def test_labeled_pairs_without_math_verify(answer, reference, right):
    verdict = judge(answer, reference, symbolic=False)
    if answer in ONLY_SYMBOLIC:
        assert verdict == MathVerdict(False, "undecided")
    else:
        assert verdict.correct is right


@pytest.mark.skipif(not has_math_verify, reason="needs the extra 'math'")
def test_labeled_pairs_with_math_verify():
    wrong = [(a, r, right) for a, r, right in PAIRS if grade(a, r) is not right]
    assert wrong == []


def test_answers_in_the_styles_of_models_without_math_verify():
    assert len(STYLED) >= 2000
    assert sum(not pair.right for pair in STYLED) >= 1000
    mistakes = [p for p in STYLED if judge(p.answer, p.reference, symbolic=False).correct is not p.right]
    assert mistakes == []


def test_a_verdict_is_true_only_for_a_right_answer():
    assert judge("1/2", "0.5")
    assert not judge("1/3", "0.5", symbolic=False)


def test_an_undefined_answer_is_wrong_and_a_number_too_large_is_undecided():
    assert judge(r"\frac{1}{0}", "5") == MathVerdict(False, "tree")
    assert judge(r"(10^{400})!x", "x") == MathVerdict(False, "undecided")
    assert judge(r"(10^{200})^{60}x", "10^{12000}x", symbolic=False) == MathVerdict(False, "undecided")


def test_conditions_that_no_number_meets_together_are_no_union_of_intervals():
    verdict = judge(r"x<1 \text{ and } x>3", r"(-\infty,1)\cup(3,\infty)", symbolic=False)
    assert verdict == MathVerdict(False, "undecided")


@pytest.mark.parametrize(("answer", "reference", "right"), [p for p in PAIRS if p[2]])
def test_a_reference_matches_itself(answer, reference, right):
    assert judge(reference, reference) == MathVerdict(True, "text")
    assert judge(f"${reference}$", reference, symbolic=False).correct


numbers = st.integers(-(10**6), 10**6)


@given(a=numbers, b=numbers.filter(bool), c=numbers)
def test_fractions_are_exact(a, b, c):
    sign = "-" if (a < 0) != (b < 0) and a else ""
    latex = rf"{sign}\frac{{{abs(a)}}}{{{abs(b)}}}"
    assert grade(latex, f"{a}/{b}", symbolic=False)
    assert grade(latex, f"{a * 3}/{b * 3}", symbolic=False)
    assert grade(latex, f"{c}/{b}", symbolic=False) == (a == c)


@given(a=numbers, b=numbers, c=numbers)
def test_polynomials_are_compared_as_functions(a, b, c):
    assert grade(f"({a}x)({b}x) + {c}", f"{a * b}x^2 + {c}", symbolic=False)
    assert not grade(f"({a}x)({b}x) + {c}", f"{a * b}x^2 + {c + 1}", symbolic=False)


@given(items=st.lists(numbers, min_size=1, max_size=6), data=st.data())
def test_sets_ignore_the_order_and_tuples_do_not(items, data):
    shuffled = data.draw(st.permutations(items))
    one, other = (", ".join(map(str, part)) for part in (items, shuffled))
    assert grade(rf"\{{{one}\}}", rf"\{{{other}\}}", symbolic=False)
    if len(items) > 1:
        assert grade(f"({one})", f"({other})", symbolic=False) == (items == list(shuffled))


@settings(max_examples=300)
@given(st.text() | st.text(alphabet=r"\{}()[]^_,.+-*/=<>|%$ 0123456789xyefracsqtpi", max_size=60))
def test_any_text_is_graded(text):
    verdict = judge(text, "12345.678", symbolic=False)
    assert not verdict.correct or "12345" in text.replace(",", "").replace(" ", "")


def test_long_and_nasty_texts_are_graded():
    for text in nasty_texts(0, 500):
        judge(text, "7", symbolic=False)
    for size in (900, 100_000, 10_000_000):
        for text in long_texts(size):
            assert not judge(text, "7", symbolic=False).correct
    for text in (
        "9^" * 400 + "9",
        "(" * 400 + "7" + ")" * 400,
        "2" + "x" * 999,
        "-" * 998 + "7",
        "7" + "!" * 500,
    ):
        judge(text, "7", symbolic=False)
    for text in ("9^{9^{9^{9^9}}}", "10^{999999999}", "1e999999999", "(10^{300})!", r"\sqrt[999999]{2}"):
        assert not judge(text, "7", symbolic=False).correct


_HUGE = ["1e400", "1e-400", "1/1e400", "1" + "0" * 400 + ".5", "2^{5000}", "(1e400, 2)", "1e400x=y"]
_MODEST = ["5", r"\sqrt{7}", r"1+\pi", "2+3i", "(1,2)", "y=2x", "0.123456", "x+1"]


@pytest.mark.parametrize("huge", _HUGE)
@pytest.mark.parametrize("modest", _MODEST)
def test_numbers_beyond_floats_are_graded(huge, modest):
    assert not judge(huge, modest, symbolic=has_math_verify).correct
    assert not judge(modest, huge, symbolic=has_math_verify).correct


def test_every_plane_of_unicode_is_graded():
    for plane in range(17):
        for character in (chr(plane * 0x10000 + offset) for offset in (0x41, 0xD0, 0x3B1, 0x1D4, 0xFFF)):
            judge(character, "7", symbolic=False)
            judge(f"7{character}", "7", symbolic=False)
    assert not judge("\ud800", "7", symbolic=False).correct


def test_grading_from_a_thread():
    verdicts = []
    thread = threading.Thread(target=lambda: verdicts.append(grade("x+x", "2x", symbolic=False)))
    thread.start()
    thread.join()
    assert verdicts == [True]


@pytest.mark.skipif(not has_math_verify, reason="needs the extra 'math'")
def test_math_verify_from_a_thread():
    verdicts = []
    thread = threading.Thread(target=lambda: verdicts.append(judge(r"\int_0^1 2x\,dx", "1")))
    thread.start()
    thread.join()
    assert verdicts == [MathVerdict(True, "symbolic")]


def test_a_timeout_is_wrong_and_reported(monkeypatch):
    def out_of_time(*args, **kwargs):
        raise _symbolic.CallTimeout

    monkeypatch.setattr(_symbolic, "require", lambda: None)
    monkeypatch.setattr(_symbolic, "calls", out_of_time)
    assert judge(r"\int_0^1 x dx", "1/2") == MathVerdict(False, "timeout")


def test_without_math_verify_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(_symbolic, "find_spec", lambda name: None)
    _symbolic.require.cache_clear()
    with pytest.raises(MissingDependency, match=r"pip install 'gem-core\[math\]'"):
        judge(r"\int_0^1 x dx", "1/2")
    _symbolic.require.cache_clear()


def test_trees():
    assert read("2x+1")[0] == "+"
    assert read("[1,2)")[:3] == ("seq", "[", ")")
    assert read("the cat") == ("text", "the cat")
    assert read("#") is None
