"""The rules by which outputs and results are compared."""

from __future__ import annotations

import pytest

from gem_core.errors import ConfigError
from gem_envs.graders._outputs import RULES, SET, read_json, rule_named, same_output, same_value, write_json

LINES, APPS, LCB, CONTESTS = (RULES[name] for name in ("lines", "apps", "livecodebench", "code_contests"))
EVERY = (LINES, APPS, LCB, CONTESTS)
NONE: tuple[()] = ()


@pytest.mark.parametrize(
    ("output", "expected", "rules"),
    [
        # numbers
        ("0.3333333333333333\n", "0.333333333333", (LINES, APPS, CONTESTS)),
        ("0.333333", "0.3333333333", (LINES, APPS, CONTESTS)),
        ("0.3333", "0.333333333333", NONE),
        ("2.0", "2", EVERY),
        ("2", "2.000", EVERY),
        ("5e-1", "0.5", EVERY),
        (".5", "0.50", EVERY),
        ("-0.0", "0.0", EVERY),
        ("3.0000001", "3", (LINES, APPS, CONTESTS)),
        ("3.01", "3", NONE),
        ("3.5", "3", NONE),
        ("1.0e3 2.50", "1000.0 2.5", EVERY),
        ("2.5\n3.5\n", "2.50\n3.50\n", EVERY),
        ("2.5\n3.6\n", "2.50\n3.50\n", NONE),
        ("100000.5", "100001.0", (APPS,)),
        ("123456789.5", "123456789", NONE),
        ("nan", "0.5", NONE),
        ("inf", "1e9", NONE),
        ("1e99999", "1.5", NONE),
        # whole numbers have every digit
        ("100001", "100000", NONE),
        ("50000000000000001", "50000000000000000", NONE),
        ("50000000000000001.0", "50000000000000000", NONE),
        ("50000000000000000.0", "50000000000000000", EVERY),
        ("9" * 5000, "9" * 5000, EVERY),
        ("9" * 4999 + "8", "9" * 5000, NONE),
        ("0011", "11", NONE),
        # words and numbers
        ("Case #1: 0.50", "Case #1: 0.5", (LINES, APPS, CONTESTS)),
        ("Case #2: 0.50", "Case #1: 0.5", NONE),
        ("x 0.5", "y 0.5", NONE),
        ("0.5.1", "0.5.10", NONE),
        # order counts
        ("1 2 3", "3 2 1", NONE),
        ("a b", "b a", NONE),
        ("a\nb", "b\na", NONE),
        ("1 1 2", "1 2", NONE),
        # spacing
        ("1 2 3 \n", "1 2 3", EVERY),
        (" 1  2 3\n\n", "1 2 3", EVERY),
        ("\n1 2 3", "1 2 3", EVERY),
        ("a b ", "a b", EVERY),
        ("a  b", "a b", (APPS, CONTESTS)),
        (" a b", "a b", (APPS, LCB, CONTESTS)),
        ("a\n\nb", "a\nb", (APPS, CONTESTS)),
        ("a\nb", "a b", (CONTESTS,)),
        ("1\n2", "1 2", (CONTESTS,)),
        ("ab", "a b", NONE),
        ("12", "1 2", NONE),
        ("1\r\n2\r\n", "1\n2\n", EVERY),
        # letter case
        ("YES", "yes", (CONTESTS,)),
        ("Yes\nNO", "YES\nno", (CONTESTS,)),
        # nothing
        ("", "", EVERY),
        ("\n", "", EVERY),
        ("", "0", NONE),
        ("0", "", NONE),
    ],
)
def test_outputs_are_compared_by_the_rule_of_the_data_set(output, expected, rules):
    for rule in EVERY:
        assert same_output(output, expected, rule) == (rule in rules), rule.name


@pytest.mark.parametrize(
    ("value", "expected", "rules"),
    [
        (0.1 + 0.2, 0.3, (LINES, APPS, CONTESTS)),
        (3.0, 3, EVERY),
        (1, True, EVERY),
        (3, 3.5, NONE),
        (100001, 100000, NONE),
        (2**70, 2**70 + 1, NONE),
        ([0.1 + 0.2, "a"], [0.3, "a"], (LINES, APPS, CONTESTS)),
        ({"a": [0.1 + 0.2]}, {"a": [0.3]}, (LINES, APPS, CONTESTS)),
        ({"a": 1}, {"a": 1, "b": 2}, NONE),
        ([1, 2], [2, 1], NONE),
        ([[1], [2]], [[1], [2]], EVERY),
        ([1], 1, NONE),
        ("1", 1, NONE),
        ("a", "A", NONE),
        (None, 0, NONE),
        (None, None, EVERY),
        ({SET: [2, 1]}, [1, 2], EVERY),
        ({SET: [2, 1]}, [1, 3], NONE),
        ({SET: [1]}, 1, NONE),
        (float("nan"), float("nan"), EVERY),
        (float("inf"), float("inf"), EVERY),
        (float("inf"), 1e308, NONE),
    ],
)
def test_results_are_compared_part_by_part(value, expected, rules):
    for rule in EVERY:
        assert same_value(value, expected, rule) == (rule in rules), rule.name


def test_whole_numbers_of_any_length_pass_through_json():
    text = "[" + "7" * 6000 + ', {"1": -3.5, "b": [true, null, "x\\n"]}]'
    value = read_json(text)
    assert write_json(value) == text
    assert same_value(value, read_json(text), LCB)
    assert not same_value(value, read_json(text.replace("7]", "8]").replace("[7", "[8", 1)), LCB)


def test_a_rule_has_a_name():
    assert rule_named("apps") is APPS
    with pytest.raises(
        ConfigError, match="compare='tokens': expected lines, apps, taco, livecodebench, or code_contests"
    ):
        rule_named("tokens")
