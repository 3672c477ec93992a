"""Programs on items in the schema of the well-known datasets."""

from __future__ import annotations

import base64
import json
import pickle
import zlib

import pytest

from gem_core.errors import DataError
from gem_envs.datasets import CodeEnv
from gem_envs.graders._packed import unpacked_text
from gem_envs.graders._program_tests import keys_of, row_tests
from gem_envs.graders._programs import run_tests

SCHEMAS = {
    "APPS": "problem_id question solutions input_output difficulty url starter_code",
    "TACO": "question solutions starter_code input_output difficulty raw_tags name source tags skill_types "
    "url Expected Auxiliary Space time_limit date picture_num memory_limit Expected Time Complexity",
    "LiveCodeBench": "question_title question_content platform question_id contest_id contest_date "
    "starter_code difficulty public_test_cases private_test_cases metadata",
    "code_contests": "name description public_tests private_tests generated_tests source difficulty "
    "solutions incorrect_solutions cf_contest_id time_limit memory_limit_bytes input_file output_file",
    "MBPP": "task_id text code test_list test_setup_code challenge_test_list",
    "MBPP sanitized": "source_file task_id prompt code test_imports test_list",
    "HumanEval": "task_id prompt canonical_solution test entry_point",
}


def packed(tests):
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


APPS_STREAM = {
    "question": "Print the half of each number.",
    "input_output": json.dumps(
        {"inputs": ["1\n3\n", ["5", "7"]], "outputs": ["0.5\n1.5\n", ["2.50", "3.50"]]}
    ),
    "starter_code": "",
}
APPS_CALL = {
    "question": "Swap.",
    "input_output": json.dumps(
        {"fn_name": "swap", "inputs": [["a", "b"], ["c", "d"]], "outputs": [[["b", "a"]], [["d", "c"]]]}
    ),
    "starter_code": "\ndef swap(x, y):\n\t",
}
TACO_CALL = {
    "question": "Swap.",
    "input_output": json.dumps(
        {"fn_name": "swap", "inputs": [["a", "b"], ["c", "d"]], "outputs": [["b", "a"], ["d", "c"]]}
    ),
    "starter_code": "class Solution:\n    def swap(self, x, y):\n        #Your code here",
}
LCB_CALL = {
    "question_content": "Add.",
    "starter_code": "class Solution:\n    def add(self, a: List[int], b: int) -> List[int]:\n        ",
    "public_test_cases": json.dumps([{"input": "[1, 2]\n3", "output": "[4, 5]", "testtype": "functional"}]),
    "private_test_cases": packed([{"input": "[0]\n-1", "output": "[-1]", "testtype": "functional"}]),
    "metadata": '{"func_name": "add"}',
}
LCB_STREAM = {
    "question_content": "Echo.",
    "starter_code": "",
    "public_test_cases": json.dumps([{"input": "1 2\n", "output": "1 2\n", "testtype": "stdin"}]),
    "private_test_cases": packed([{"input": "3\n", "output": "3\n", "testtype": "stdin"}]),
    "metadata": "{}",
}
CONTESTS = {
    "description": "Say yes to an even number.",
    "public_tests": {"input": ["2\n"], "output": ["YES\n"]},
    "private_tests": {"input": ["3\n"], "output": ["NO\n"]},
    "generated_tests": {"input": ["4\n", "5\n"], "output": ["YES\n", "NO\n"]},
    "time_limit": {"seconds": 7, "nanos": 500_000_000},
    "memory_limit_bytes": 2**30,
}
MBPP = {
    "task_id": 1,
    "text": "Write a function to find the elements that two lists share.",
    "code": "def shared(a, b):\r\n  return tuple(set(a) & set(b))",
    "test_list": [
        "assert set(shared((3, 4), (5, 4))) == set((4,))",
        "assert set(shared((1,), (2,))) == set(())",
    ],
    "test_setup_code": "",
    "challenge_test_list": [],
}
MBPP_SANITIZED = {
    "task_id": 2,
    "prompt": "Write a function that halves.",
    "code": "def half(x):\n  return x / 2",
    "test_imports": ["import math"],
    "test_list": ["assert math.isclose(half(3), 1.5, rel_tol=0.001)", "assert half(0) == 0"],
}
HUMAN_EVAL = {
    "task_id": "HumanEval/0",
    "prompt": "from typing import List\n\n\ndef double(x: int) -> int:\n    return 2 * x\n\n\n"
    'def fours(xs: List[int]) -> List[int]:\n    """ Return four times each.\n    >>> fours([1])\n    """\n',
    "canonical_solution": "    return [double(double(x)) for x in xs]\n",
    "test": "\n\nMETADATA = {'author': 'x'}\n\n\ndef check(candidate):\n    assert candidate([1]) == [4]\n"
    "    assert candidate([]) == []\n    for x in (5,):\n        assert candidate([x]) == [double(2 * x)]\n",
    "entry_point": "fours",
}
HALVES = "import sys\nfor line in sys.stdin:\n    print(int(line) / 2)"
SOLVED = {
    "APPS": (APPS_STREAM, HALVES, HALVES.replace("/ 2", "// 2")),
    "APPS call": (APPS_CALL, "def swap(x, y):\n    return y, x", "def swap(x, y):\n    return x, y"),
    "TACO call": (
        TACO_CALL,
        "class Solution:\n    def swap(self, x, y):\n        return (y, x)",
        "class Solution:\n    def swap(self, x, y):\n        return y",
    ),
    "LiveCodeBench call": (
        LCB_CALL,
        "class Solution:\n    def add(self, a: List[int], b: int):\n        return [x + b for x in a]",
        "class Solution:\n    def add(self, a: List[int], b: int):\n        return a if b < 0 else [4, 5]",
    ),
    "LiveCodeBench": (LCB_STREAM, "print(input())", "print('1 2')"),
    "code_contests": (
        CONTESTS,
        "print('no' if int(input()) % 2 else 'yes')",
        "print('no' if input() == '3' else 'yes')",
    ),
    "MBPP": (MBPP, MBPP["code"], "def shared(a, b):\n    return a"),
    "MBPP sanitized": (MBPP_SANITIZED, MBPP_SANITIZED["code"], "def half(x):\n    return x // 2"),
    "HumanEval": (
        HUMAN_EVAL,
        HUMAN_EVAL["prompt"] + HUMAN_EVAL["canonical_solution"],
        "def double(x):\n    return x\n\ndef fours(xs):\n    return [double(double(x)) for x in xs]",
    ),
    "HumanEval, body only": (HUMAN_EVAL, HUMAN_EVAL["canonical_solution"], "    return xs\n"),
    "HumanEval, function only": (
        HUMAN_EVAL,
        "def fours(xs: List[int]):\n    return [4 * x for x in xs]",
        "def fours(xs):\n    return [2 * x for x in xs]",
    ),
}


def column(row):
    return keys_of(tuple(row))[1]


def report(code, row, **kwargs):
    return run_tests(code, row_tests(row, column(row)), **kwargs)


@pytest.mark.parametrize("name", SOLVED)
def test_a_right_program_passes_and_a_wrong_one_fails(name):
    row, right, wrong = SOLVED[name]
    env = CodeEnv(dataset=[row])
    env.reset(seed=0)
    _, reward, _, _, info = env.step(f"```python\n{right}\n```")
    assert (reward, info["success"]) == (1.0, True)
    env.reset(seed=0)
    assert env.step(f"```python\n{wrong}\n```")[1] == 0.0


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_columns_tell_the_data_set(name):
    expected = {
        "APPS": ("question", "input_output"), "TACO": ("question", "input_output"),
        "LiveCodeBench": ("question_content", "public_test_cases"),
        "code_contests": ("description", "public_tests"), "MBPP": ("text", "test_list"),
        "MBPP sanitized": ("prompt", "test_list"), "HumanEval": ("prompt", "test"),
    }  # fmt: skip
    assert keys_of(tuple(SCHEMAS[name].split())) == expected[name]


def test_prompts_say_what_is_tested():
    shown = {name: CodeEnv(dataset=[row]).reset(seed=0)[0] for name, (row, *_) in SOLVED.items()}
    assert "def add(self, a: List[int], b: int)" in shown["LiveCodeBench call"]
    assert "Write a Python function swap." in shown["APPS call"]
    assert MBPP["test_list"][1] in shown["MBPP"]
    assert "Write the whole function fours." in shown["HumanEval"]
    assert "reads standard input" in shown["code_contests"]


def test_functional_tests_in_one_column_are_of_a_function():
    """Without the other column, the tests ran as programs that read, and every right answer failed."""
    tests = [{"input": "1\n2", "output": "3", "testtype": "functional"}]
    row = {"problem": "Add.", "tests": json.dumps(tests), "metadata": {"func_name": "add"}}
    assert report("def add(a, b):\n    return a + b", row).passed == 1
    assert report("print(int(input()) + int(input()))", row).passed == 0
    with pytest.raises(DataError, match="functional, but nothing names the function"):
        row_tests({**row, "metadata": "{}"}, "tests")
    with pytest.raises(DataError, match="testtype='unit': expected 'stdin' or 'functional'"):
        row_tests({**row, "tests": [{**tests[0], "testtype": "unit"}]}, "tests")


def test_tests_of_every_column_are_used():
    assert len(row_tests(CONTESTS, "public_tests").tests) == 4
    assert len(row_tests(LCB_CALL, "public_test_cases").tests) == 2
    assert (
        row_tests(
            {"tests": LCB_CALL["private_test_cases"], "metadata": '{"func_name": "f"}'}, "tests"
        ).function
        == "f"
    )


def test_own_limits_of_an_item_count_if_they_are_higher():
    tests = row_tests(CONTESTS, "public_tests")
    assert (tests.cpu_seconds, tests.memory_bytes) == (7.5, 2**30)
    for limit in (None, {"seconds": None, "nanos": None}, {}, "2 seconds", 0):
        assert row_tests({**CONTESTS, "time_limit": limit}, "public_tests").cpu_seconds is None


class Trap:
    """Runs code when it is unpickled."""

    def __reduce__(self):
        return print, ("unpickled",)


@pytest.mark.parametrize(
    "pickled",
    [pickle.dumps(Trap()), pickle.dumps(["a"]), pickle.dumps(b"a"), pickle.dumps(7), b"", b"cos\nsystem\n."],
)
def test_only_strings_are_taken_from_a_pickle(pickled, capsys):
    with pytest.raises(DataError):
        unpacked_text(base64.b64encode(zlib.compress(pickled)).decode())
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_packed_string_is_read(protocol):
    for text in ("", "[1]", "caf\u00e9 \U0001f600 " * 1000):
        assert unpacked_text(base64.b64encode(zlib.compress(pickle.dumps(text, protocol)))) == text


@pytest.mark.parametrize("packed_text", ["x", "%%%", base64.b64encode(b"x").decode()])
def test_other_text_is_refused(packed_text):
    with pytest.raises(DataError):
        unpacked_text(packed_text)
