"""Letter case and separators of thousands, over all datasets."""

from __future__ import annotations

import re

import pytest

import gem_core
from gem_envs._rg.spelling import CASE_COUNTS, spellings

pytest.importorskip("reasoning_gym", reason="needs the extra 'rg'")

SLOW = {"futoshiki", "knight_swap", "codeio", "rubiks_cube", "composite"}
NUMBER = re.compile(r"(?<![\d.,])[1-9]\d{3,}")


def answers(items):
    """Yield the environment, the expected answer, and the row of some items of each dataset."""
    for id in gem_core.list_envs("rg:*"):
        if id.removeprefix("rg:") not in SLOW:
            env = gem_core.make(id)
            for index in range(items):
                env.reset(options={"index": index})
                answer = env.oracle_action()
                if answer is not None and env.step(answer)[1] == 1.0:
                    yield env.unwrapped, answer.removeprefix(r"\boxed{")[:-1], env.unwrapped.row


def test_case_and_separators_cost_nothing_in_any_dataset():
    lost, cases, numbers = [], 0, 0
    for env, answer, row in answers(1):
        forms = {answer.lower(), answer.upper(), answer.title()} - {answer}
        if "," not in answer:
            forms |= {NUMBER.sub(lambda match: f"{int(match[0]):,}", answer)} - {answer}
            numbers += NUMBER.search(answer) is not None
        cases += answer.lower() != answer.upper()
        lost += [(env.spec.id, answer, form) for form in forms if env.grade(form, row).score < 1]
    assert lost == []
    assert cases > 40
    assert numbers > 4


def test_wrong_answers_stay_wrong():
    checked, paid = 0, []
    previous = None
    for env, answer, row in answers(2):
        if previous and previous[0] is env and env.grade(previous[1], row).score < 1:
            checked += 1
            forms = (previous[1].lower(), previous[1].upper())
            paid += [(env.spec.id, answer, form) for form in forms if env.grade(form, row).score == 1]
        previous = env, answer
    assert paid == []
    assert checked > 80


@pytest.mark.parametrize(
    ("answer", "expected", "read"),
    [
        ("1,234", "1234", "1234"),
        ("-22,856", "-22856", "-22856"),
        ("1,462.421", "1462.421", "1462.421"),
        ("12 345 678", "12345678", "12345678"),
        ("12\u202f345", "12345", "12345"),
        ("1'234", "1234", "1234"),
        ("1\u2019234", "1234", "1234"),
        ("1_234", "1234", "1234"),
        ("1{,}234", "1234", "1234"),
        ("619/1,920", "619/1920", "619/1920"),
        ("TRUE", "True", "True"),
        ("fill b", "fill B", "fill B"),
        ("a=2,b=3", "A=2,C=3", "A=2,b=3"),
        ("rddl", "RDDRLL", "RDDL"),
        ("YES", "no", "yes"),
    ],
)
def test_spellings_that_mean_the_same(answer, expected, read):
    assert read in spellings(answer, expected, "some")


@pytest.mark.parametrize(
    ("answer", "expected", "name"),
    [
        ("1,234", "1, 234", "some"),  # a list
        ("1 234", "5 678", "some"),
        ("12,34", "1234", "some"),
        ("1,2345", "12345", "some"),
        ("0,375", "375", "some"),
        ("1.234,567", "1.234567", "some"),
        ("r u f", "R U F", "rubiks_cube"),
        ('{"A": 1}', '{"a": 1}', "codeio"),
    ],
)
def test_what_carries_meaning_is_kept(answer, expected, name):
    assert [form for form in spellings(answer, expected, name) if form == expected] == []
    assert "rubiks_cube" in CASE_COUNTS


def test_partial_credit_is_never_less_than_the_packages():
    env = gem_core.make("rg:word_sorting")
    env.reset(seed=0)
    right = env.unwrapped.row["answer"]
    assert env.unwrapped.grade(right.swapcase(), env.unwrapped.row).score == 1
    assert env.unwrapped.grade("nothing", env.unwrapped.row).score < 1
