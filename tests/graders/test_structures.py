r"""A verdict "equal" needs both texts read to the last symbol, and spelling alone must not cost a verdict."""

from __future__ import annotations

import importlib.util
import random
import re
from decimal import localcontext
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gem_envs.graders import _balls
from gem_envs.graders._evaluation import evaluate, to_ball
from gem_envs.graders._latex import read
from gem_envs.graders._printed import Printer
from gem_envs.graders._spelling import same_spelling, symbols
from gem_envs.graders.math import MathVerdict, grade, judge
from tests.graders.structures import STRUCTURED, TEMPLATES, chosen, wrong_answers
from tests.graders.styles import STYLED

needs_math_verify = pytest.mark.skipif(
    importlib.util.find_spec("math_verify") is None, reason="needs the extra 'math'"
)
WRONG = [pair for pair in STRUCTURED if not pair.right]
RIGHT = [pair for pair in STRUCTURED if pair.right]


def test_the_structured_pairs_are_many():
    assert len(TEMPLATES) >= 60
    assert len(WRONG) >= 400
    assert len(RIGHT) >= 400
    assert chosen("a⟨1|2⟩b⟨3|4⟩") == "a1b3"
    assert wrong_answers("a⟨1|2⟩b⟨3|4⟩") == ["a2b3", "a1b4"]


def test_no_wrong_structured_answer_is_paid():
    assert [p for p in WRONG if grade(p.answer, p.reference, symbolic=False)] == []


@pytest.mark.parametrize("part", range(4))
def test_respelled_structured_answers_are_accepted(part):
    lost = [p for p in RIGHT[part::12] if not grade(p.answer, p.reference, symbolic=False)]
    assert len(lost) < 0.02 * len(RIGHT[part::12])


MISREAD = [
    (r"x \equiv 3 \pmod{7}", r"x \equiv 3 \pmod{5}"),
    (
        r"\begin{cases} 1 & x>0 \\ 2 & x \le 0\end{cases}",
        r"\begin{cases} 1 & x>0 \\ 3 & x \le 0\end{cases}",
    ),
    (r"x<1 \text{ or } x>3", r"x<1 \text{ and } x>3"),
    (r"\{x \mid -1<x<2\}", r"\{x \mid -1<x<3\}"),
    (r"\forall x \in \mathbb{R}, x^2 \ge 0", r"\exists x \in \mathbb{R}, x^2 \ge 0"),
    (r"1, 2, \ldots, n", r"1, 3, 5, \ldots, 2n-1"),
    ("f'(x)", "f''(x)"),
    (r"\frac{1}{2004!}", r"\frac{1}{2006!}"),
    ("0", r"\sqrt{2}\times 10^{-13}"),
    ("e^{-30}", "e^{-31}"),
    (r"10^{10}+\sqrt{2}", "10^{10}"),
    ("p and q", "p or q"),
    # numbers that are close
    (r"\sqrt{10^{20}+1}", "10^{10}"),
    (r"10^{400}+\sqrt{2}", "10^{400}"),
    (r"e^{-300}+1", "1"),
    (r"\sqrt{1+10^{-100}}", "1"),
    (r"x+10^{-20}\sqrt{2}", "x"),
    (r"e^{\pi\sqrt{163}}", "262537412640768744"),
    (r"\sin(10^{-20})", "10^{-20}"),
    ("3.14159266", r"\pi"),
    ("3.141592", r"\pi"),
    (r"\frac{1}{3}", "0.333334"),
    # what a reader may forget
    ("5 5", "55"),
    ("4 2", "42"),
    ("2x = 4", "4"),
    ("f(2x)", "2f(x)"),
    (r"\frac{dy}{dx}", r"\frac{y}{x}"),
    ("5!!", "120!"),
    ("5 million", "5"),
    ("5 dozen", "5"),
    ("5 squared", "5"),
    ("5 minus 3", "5"),
    ("0.333...", "0.333"),
    ("1, 1, 2, 3, 5", "1, 2, 2, 3, 5"),
    (r"x \notin [1,2]", "[1,2]"),
    (r"y \in [1,2]", r"x \in [1,2]"),
    ("y < 2", "x < 2"),
    (r"x = \pm 2", r"y = \pm 2"),
    (r"y = x(x+2) = x^2+x", "x^2+x"),
    (r"x^2", r"x^2 \text{ for } x>0"),
    (r"k\pi", r"k\pi, k \in \mathbb{Z}"),
    (r"\mathbf{a} \times \mathbf{b}", r"\mathbf{a} \cdot \mathbf{b}"),
    ("1010_2", "1010"),
    (r"\sum_{k=1}^{n} a_k", r"\sum_{j=1}^{n} a_k"),
    (r"\lim_{x\to 0} a_n", r"\lim_{n\to 0} a_n"),
    (r"\lfloor x/3 + 1 \rfloor", r"\lfloor x/2 + 1 \rfloor"),
    ("(-1)^N", "(-1)^n"),
    ("5 mW", "5 MW"),
    (
        r"\begin{cases} x & x \ge 0 \\ -x & \text{never}\end{cases}",
        r"\begin{cases} x & x \ge 0 \\ -x & x<0\end{cases}",
    ),
    ("a_{11}", "a_1"),
    (r"2 \sin x + 1", r"2 \sin 1 + x"),
    (r"1 \text{ or } 2", "(1,2)"),
    ("x=1 and x=2", "x=1 or x=2"),
]
RESPELLED = [
    (r"x\equiv 1\pmod{3}", r"x \equiv 1 \pmod 3"),
    (r"\{x|x>1\}", r"\{x \mid x>1\}"),
    (r"\begin{cases}1&x>0\\2&x\le0\end{cases}", r"\begin{cases}1,&x>0,\\2,&x\leq 0.\end{cases}"),
    (r"1,2,\dots,n", r"1, 2, \ldots, n"),
    (r"x>1 \text{ and } x<3", "(1,3)"),
    ("*73*", "73"),
    ("__73__", "73"),
    ("***73***", "73"),
    (r"x = **5**", "5"),
    (r"\sqrt{5+2\sqrt6}", r"\sqrt2+\sqrt3"),
    (r"\frac{1}{\sqrt{10^{20}+1}+10^{10}}", r"\sqrt{10^{20}+1}-10^{10}"),
    ("3.14626436994", r"\sqrt2+\sqrt3"),
    ("0.142857142857...", r"\frac{1}{7}"),
    (r"\sum_{i=1}^{n} a_i", r"\sum_{k=1}^{n} a_k"),
    (r"\mathbb{R}\setminus\{0\}", r"x \ne 0"),
    (r"\frac{5\pi}{4}+n\pi \text{ for any integer } n", r"\frac{\pi}{4}+k\pi, k \in \mathbb{Z}"),
    (r"x \in \{y : |y| < 2\}", r"(-2, 2)"),
    (r"|x|<2", r"-2<x<2"),
]


@pytest.mark.parametrize(("answer", "reference"), MISREAD)
def test_a_text_that_could_be_read_in_part_only_is_not_equal(answer, reference):
    assert not judge(answer, reference, symbolic=False).correct
    assert not judge(reference, answer, symbolic=False).correct
    assert judge(f"${answer}$", answer, symbolic=False).correct
    assert judge(f"${reference}$", reference, symbolic=False).correct


@pytest.mark.parametrize(("answer", "reference"), RESPELLED)
def test_the_same_in_another_spelling_is_equal(answer, reference):
    assert judge(answer, reference, symbolic=False).correct
    assert judge(reference, answer, symbolic=False).correct


def _lines(name: str) -> list[list[str]]:
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    return [line.split(" ~ ") for line in text.splitlines()]


def test_pairs_that_differ_at_one_place_are_not_equal():
    pairs = _lines("different.txt")
    assert len(pairs) >= 300
    assert [
        pair for pair in pairs if grade(*pair, symbolic=False) or grade(*pair[::-1], symbolic=False)
    ] == []
    assert [text for pair in pairs for text in pair if not grade(f"$ {text} $.", text, symbolic=False)] == []


def test_pairs_that_differ_in_notation_only_are_equal():
    pairs = _lines("respelled.txt")
    assert len(pairs) >= 150
    evaluate = importlib.util.find_spec("math_verify") is not None
    lost = [
        pair
        for pair in pairs
        if not (grade(*pair, symbolic=evaluate) and grade(*pair[::-1], symbolic=evaluate))
    ]
    assert lost == ([] if evaluate else [pair for pair in lost if "\\sum" in pair[0] + pair[1]])


# -- every single-place change of the references ----------------------------------------------

_TOKEN = re.compile(r"\\[A-Za-z]+|\d|[A-Za-z]|[-+<>=^]")
_OTHER = {
    "+": "-",
    "-": "+",
    "<": ">",
    ">": "<",
    "=": r"\ne ",
    "^": "_",
    r"\le": r"\ge",
    r"\pi": "e",
    r"\sin": r"\cos",
}
_SAME = {"(-1)^{n-1}", r"x = \frac{\pi}{4} - k\pi, k \in \mathbb{Z}"}
"""Changes that keep the meaning."""


def _changed(text: str) -> list[str]:
    """Return the text with one digit, letter, or sign changed."""
    found = []
    for match in _TOKEN.finditer(text):
        symbol = match[0]
        other = str((int(symbol) + 1) % 10) if symbol.isdigit() else _OTHER.get(symbol)
        if other is None and len(symbol) == 1 and not text[match.start() - 1 : match.start()].isalpha():
            other = None if text[match.end() : match.end() + 1].isalpha() else "w" if symbol != "w" else "z"
        if other is not None:
            found.append(text[: match.start()] + other + text[match.end() :])
    return found


def test_a_changed_digit_letter_or_sign_changes_the_verdict():
    references = sorted(
        {pair.reference for pair in STYLED if pair.kind in ("expression", "tuple", "set", "value")}
    )
    changed = [(answer, reference) for reference in references for answer in _changed(reference)]
    assert len(changed) > 100
    paid = [pair for pair in changed if grade(*pair, symbolic=False) and pair[0] not in _SAME]
    assert paid == []


# -- what math-verify evaluates ---------------------------------------------------------------

EVALUATED = [
    (r"\int_{⟨0|1⟩}^{⟨2|3⟩} ⟨3|2⟩x^⟨2|3⟩\,dx", "8"),
    (r"\int_{0}^{⟨\pi|2\pi⟩} ⟨\sin|\cos⟩ x\,dx", "2"),
    (r"\sum_{k=⟨1|2⟩}^{\infty} \frac{⟨1|2⟩}{k^{⟨2|4⟩}}", r"\frac{\pi^2}{6}"),
    (r"\lim_{x \to ⟨0|1⟩} \frac{\sin ⟨x|(2x)⟩}{x}", "1"),
    (r"\prod_{k=⟨2|3⟩}^{⟨400|401⟩} \frac{k⟨-|+⟩1}{k}", r"\frac{1}{400}"),
]


@needs_math_verify
@pytest.mark.parametrize(("template", "reference"), EVALUATED)
def test_values_by_math_verify_depend_on_every_symbol(template, reference):
    assert judge(chosen(template), reference) == MathVerdict(True, "symbolic")
    assert judge(reference, chosen(template)) == MathVerdict(True, "symbolic")
    wrong = wrong_answers(template)
    assert wrong
    assert [answer for answer in wrong if grade(answer, reference)] == []


@needs_math_verify
def test_values_by_math_verify_are_compared_exactly():
    assert judge(r"\int_0^1 10^{-13}\,dx", "0") == MathVerdict(False, "symbolic")
    assert judge(r"\int_0^1 x^2\,dx", "0.3333334") == MathVerdict(False, "symbolic")
    assert judge(r"\int_0^1 x^2\,dx", "0.3333333") == MathVerdict(True, "symbolic")
    assert not judge(r"\lim_{x\to 0} \frac{|x|}{x}", "1").correct  # the limits from both sides differ
    assert not judge(r"\int_0^1 f(x)\,dx", "1").decided


def test_only_texts_that_were_read_are_printed():
    printer = Printer()
    assert printer.latex(read("\\int_0^1 2y dy")) == r"\int_{0}^{1} (((2) \cdot (a))) \, da"
    assert printer.names == {"a": "bound 1"}
    for text in (
        r"\int_0^1 2x",
        r"\sum_{k} k",
        r"\lim_{x} x",
        r"\sum_{k=1}^{3} k \dots",
    ):
        assert read(text) is None


# -- verdicts and options ---------------------------------------------------------------------


def test_what_no_step_can_tell_is_undecided():
    assert judge("six", r"\forall x") == MathVerdict(False, "undecided")
    assert not judge(r"\Re(z) \ll 1", "5", symbolic=False).decided
    assert judge("6", "5").decided
    assert judge(r"p \implies q", r"p \Rightarrow q") == MathVerdict(True, "spelling")
    assert not MathVerdict(False, "timeout").decided


def test_rounded_references():
    for answer in ("3.14159", r"\pi", "3.14", "3.1401", r"\frac{22}{7}"):
        assert grade(answer, "3.14", symbolic=False, rounded=True)
    for answer in ("3.1", "3", "3.15", "3.1351e0", "3.13", "314"):
        assert grade(answer, "3.14", symbolic=False, rounded=True) is (answer == "3.1351e0")
    assert grade("3.135", "3.14", symbolic=False, rounded=True)
    assert not grade("3.1349", "3.14", symbolic=False, rounded=True)
    assert not grade("12.4", "12", symbolic=False, rounded=True)
    assert grade("(1.414, 2)", "(1.41, 2)", symbolic=False, rounded=True)
    assert grade(r"x = \sqrt{2}", "x = 1.41", symbolic=False, rounded=True)
    assert grade("-2.718", "-2.72", symbolic=False, rounded=True)
    for answer in ("3.14159", r"\pi"):
        assert not grade(answer, "3.14", symbolic=False)


# -- numbers of many digits -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        (r"\sqrt{2}", "1.41421356237309504880168872420969807856967187537694"),
        (r"\pi", "3.14159265358979323846264338327950288419716939937510"),
        ("e", "2.71828182845904523536028747135266249775724709369995"),
        (r"\ln 2", "0.69314718055994530941723212145817656807550013436025"),
        (r"\sin 1", "0.84147098480789650665250232163029899962256306079837"),
        (r"\cos 1", "0.54030230586813971740093660744297660373231042061792"),
        (r"\arctan(1/2)", "0.46364760900080611621425623146121440202853705428612"),
        (r"\arcsin(1/2)", "0.52359877559829887307710723054658381403286156656251"),
        (r"\sqrt[3]{2}", "1.25992104989487316476721060727822835057025146470150"),
        (r"\log_{10} 2", "0.30102999566398119521373889472449302676818988146210"),
        (r"\sinh 1", "1.17520119364380145688238185059560081515571798133409"),
        (r"\sin(10^{20})", "-0.64525128526578084420581171131252300740690419668690"),
    ],
)  # fmt: skip
def test_digits(text, digits):
    value = to_ball(evaluate(read(text), 0, 60))
    assert abs(Fraction(value.re) - Fraction(digits)) < Fraction(1, 10**45)
    assert value.rad < Fraction(1, 10**45)


@settings(max_examples=60)
@given(a=st.fractions(-50, 50), b=st.fractions(-50, 50))
def test_the_radius_reaches_the_value(a, b):
    """Values with few digits agree with values with many, within their radius."""
    trees = [
        read(text) for text in (r"\sqrt{x}+e^{y}", r"\sin(x)\ln(y)", r"\arctan(x)^3/y", r"x^{1/3}\cos(y)")
    ]
    for tree in trees:
        for rough, fine in ((12, 50), (20, 60)):
            few, many = (_at(tree, a, b, digits) for digits in (rough, fine))
            if few is None or many is None:
                continue
            with localcontext() as context:
                context.prec = 80
                distance = _balls.size(_balls.add(few, _balls.negative(many)))
                assert distance <= 2 * (few.rad + many.rad)


def _at(tree, x, y, digits):
    tree = _filled(_filled(tree, "x", x), "y", y)
    value = evaluate(tree, 0, digits)
    return None if value is None else to_ball(value)


def _filled(tree, name, value):
    if tree == ("v", name):
        return ("n", Fraction(value), None)
    return tuple(_filled(part, name, value) if isinstance(part, tuple) else part for part in tree)


# -- robustness -------------------------------------------------------------------------------


def test_symbols_leave_nothing_out():
    assert [s.name for s in symbols(r"\frac12 \le x_{1}")] == ["frac", "1", "2", "<=", "x", "_", "1"]
    assert same_spelling(r"\forall x", r"\forall  x")
    assert not same_spelling("", "")
    assert not same_spelling("#", "@")


def test_mixtures_of_structures_raise_nothing():
    rng = random.Random(0)
    pieces = [piece for pair in STRUCTURED[::9] for piece in re.findall(r"\\?[A-Za-z]+|.", pair.answer)]
    graded = 0
    for _ in range(1500):
        texts = ["".join(rng.choices(pieces, k=rng.randrange(1, 25))) for _ in range(2)]
        graded += judge(*texts, symbolic=False).by in ("text", "tree", "spelling", "undecided")
    assert graded == 1500


def test_nested_sets_are_read_in_little_time():
    for text in (r"\{" * 60 + "|x" * 40 + r"\}" * 60, r"\{|" * 40, r"\{x:" * 35 + r"\}" * 35, r"\{\{" * 30):
        assert not judge(text, "5", symbolic=False).correct
