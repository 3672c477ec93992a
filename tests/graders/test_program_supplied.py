"""What the datasets' own graders do around a program: how it may end, and which names it need not import."""

from __future__ import annotations

import pytest

from gem_envs.graders import _programs
from gem_envs.graders._outputs import RULES
from gem_envs.graders._program_tests import keys_of, row_tests
from gem_envs.graders._programs import program_limits, run_tests
from gem_envs.graders._supplied import _table, supplied_names
from gem_envs.sandbox._process import Process

STREAM = {"inputs": ["2\n"], "outputs": ["4\n"]}
ROWS = {
    "lines": {"problem": "p", "tests": STREAM},
    "apps": {"question": "q", "input_output": STREAM},
    "taco": {"question": "q", "input_output": STREAM, "skill_types": "[]"},
    "livecodebench": {
        "question_content": "q",
        "public_test_cases": [{"input": "2\n", "output": "4\n", "testtype": "stdin"}],
    },
    "code_contests": {"description": "d", "public_tests": {"input": ["2\n"], "output": ["4\n"]}},
}
RIGHT = "n = int(input())\nprint(2 * n)\n"


def passes(name, code):
    row = ROWS[name]
    tests = row_tests(row, keys_of(tuple(row))[1])
    assert tests.rule is RULES[name]
    return run_tests(code, tests).passed == 1


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize(
    ("end", "right_in"),
    [
        ("", ROWS),
        ("exit()", ROWS),
        ("import sys; sys.exit(0)", ROWS),
        ("import os, sys; sys.stdout.flush(); os._exit(0)", ROWS),
        ("exit(1)", ("apps", "livecodebench", "code_contests")),
        ("import sys; sys.exit(3)", ("apps", "livecodebench", "code_contests")),
        ("import sys; sys.exit('done')", ("apps", "livecodebench", "code_contests")),
        ("raise SystemExit(True)", ("apps", "livecodebench", "code_contests")),
        ("def main():\n    return 1\nif __name__ == '__main__':\n    raise SystemExit(main())",
         ("apps", "livecodebench", "code_contests")),
        ("1 / 0", ("code_contests",)),
        ("raise RuntimeError", ("code_contests",)),
        ("input()", ("code_contests",)),
        ("import os, sys; sys.stdout.flush(); os._exit(1)", ("code_contests",)),
    ],
)  # fmt: skip
def test_how_a_program_with_the_right_output_may_end(name, end, right_in):
    assert passes(name, RIGHT + end) == (name in right_in)
    assert not passes(name, f"print(5)\n{end}")


def test_a_right_output_does_not_count_if_the_time_runs_out():
    tests = row_tests(ROWS["code_contests"], "public_tests")
    report = run_tests(f"{RIGHT}\nwhile True: pass", tests, limits=program_limits(1))
    assert report.hint == "Test 1 of 1 failed: the program ran too long."


def test_no_output_of_a_program_that_failed_does_not_count():
    row = {**ROWS["code_contests"], "public_tests": {"input": ["2\n"], "output": [" \n"]}}
    tests = row_tests(row, "public_tests")
    assert run_tests("input()", tests).passed == 1
    for code in ("1 / 0", "print(", "exit(1)"):
        assert run_tests(code, tests).passed == 0, code


NAMES = {
    "math.sqrt(4)": ("apps", "taco", "livecodebench"),
    "sqrt(4)": ("apps", "taco", "livecodebench"),
    "deque([1]) and Counter('a')": ("apps", "taco", "livecodebench"),
    "List[int] and Tuple[int]": ("apps", "taco", "livecodebench"),
    "heappop([1]) and heapq.heappop([2])": ("apps", "taco", "livecodebench"),
    "stdin.readable()": ("apps", "taco", "livecodebench"),
    "time.time()": ("apps", "taco"),
    "Optional[int]": ("livecodebench",),
    "bisect_left([1], 1) == 0 and bisect.bisect([1], 1)": ("livecodebench",),
    "mean([1, 2]) and statistics.median([1])": ("livecodebench",),
    "dumps({}) and json.loads('1') == loads('1')": ("livecodebench",),
    "starmap(pow, [(2, 3)]) and itertools.count()": ("livecodebench",),
    "pow(2, 3, 5) == 3 and abs(-1) == 1": tuple(ROWS),
    "datetime.datetime(2020, 1, 1) and timedelta(1)": ("livecodebench",),
    "random.random() < 1": ("apps", "taco", "livecodebench"),
    "eval('gcd(4, 6)')": ("apps", "taco", "livecodebench"),
    "os.getcwd()": (),
    "sys.getrecursionlimit() == 50_000": ("livecodebench",),
}


@pytest.mark.parametrize("expression", NAMES)
def test_names_that_a_grader_supplies(expression):
    for name in ROWS:
        assert passes(name, f"assert {expression}\n{RIGHT}") == (name in NAMES[expression]), name


def test_a_program_may_use_a_supplied_name_as_its_own():
    for name in ROWS:
        assert passes(name, "count = deque = int(input())\nfor List in (count + deque,):\n    print(List)"), (
            name
        )
        assert passes(name, "def gcd(a):\n    return 2 * a\nprint(gcd(int(input())))"), name


def test_functions_have_the_names_of_their_data_set():
    code = "class Solution:\n    def f(self, a: List[int]) -> Optional[int]:\n        return lcm(*a)"
    call = {"input": "[4, 6]", "output": "12", "testtype": "functional"}
    row = {"question_content": "q", "public_test_cases": [call], "metadata": {"func_name": "f"}}
    assert run_tests(code, row_tests(row, "public_test_cases")).passed == 1
    row = {"question": "q", "input_output": {"fn_name": "f", "inputs": [[[4, 6]]], "outputs": [12]}}
    assert run_tests(code, row_tests(row, "input_output")).passed == 0


def test_a_later_import_of_a_grader_replaces_an_earlier_one():
    table = _table("livecodebench")
    assert table["datetime"] == "import datetime"
    assert table["bisect"] == "import bisect"
    assert table["List"] == "from typing import List"
    assert not {"pow", "abs", "open", "sum"} & table.keys()
    assert supplied_names("livecodebench", "x = 1") == ""
    assert "from math import gcd" in supplied_names("livecodebench", "eval('gcd(1, 2)')")


def test_names_that_this_python_lacks_are_left_out(monkeypatch):
    import sys

    monkeypatch.setattr(sys, "last_value", None, raising=False)  # of an interactive session
    _table.cache_clear()
    assert passes("livecodebench", f"{RIGHT}last_value = 1")
    _table.cache_clear()


def test_rules_hold_at_level_process(monkeypatch):
    monkeypatch.setattr(_programs, "open_sandbox", lambda packages: Process(packages=bool(packages)))
    for end, right_in in (
        ("exit(3)", ("apps", "livecodebench", "code_contests")),
        ("1 / 0", ("code_contests",)),
        ("deque(open('/proc/self/fd/0'))", ("apps", "taco", "livecodebench", "code_contests")),
    ):
        for name in ROWS:
            assert passes(name, RIGHT + end) == (name in right_in), (name, end)
