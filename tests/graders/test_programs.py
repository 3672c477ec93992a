from __future__ import annotations

import json

import pytest

from gem_core.errors import DataError
from gem_envs.datasets import CodeEnv
from gem_envs.graders._program_tests import read_tests
from gem_envs.graders._programs import _Runner, run_tests
from gem_envs.sandbox import ProgramLimits, RunResult

DOUBLE = {"inputs": ["1\n", "2\n", "10\n"], "outputs": ["2\n", "4", "20 \n"]}
RIGHT = "print(2 * int(input()))"


def report(code, tests=DOUBLE, **kwargs):
    return run_tests(code, read_tests(tests), **kwargs)


@pytest.mark.parametrize(
    "tests",
    [
        DOUBLE,
        json.dumps(DOUBLE),
        [{"input": i, "output": o} for i, o in zip(DOUBLE["inputs"], DOUBLE["outputs"], strict=True)],
        {"inputs": [["1"], ["2"]], "outputs": [["2"], ["4"]]},
        {"inputs": [[[1, 1]], [2]], "outputs": [["2 2"], [4]]},
    ],
)
def test_every_form_of_tests_is_read(tests):
    result = report("print(*[2 * int(w) for w in input().split()])", tests)
    assert result.passed == result.tests == len(read_tests(tests).tests)
    assert result.feedback == ""


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("print(3 * int(input()))", "Output:\n3"),
        ("1 / 0", "ZeroDivisionError"),
        ("print(", "SyntaxError"),
        ("while True: pass", "ran too long"),
        ("", "Output:\n"),
        ("import os; os._exit(0)", "Output:\n"),
        ("print(2 * int(input())); raise SystemExit(1)", "failed"),
        ("print('2 4 20')", "Output:\n2 4 20"),
    ],
)
def test_wrong_programs_fail_and_the_first_failure_is_shown(code, said):
    result = report(code, limits=ProgramLimits(wall_seconds=600, cpu_seconds=1))
    assert result.passed == 0
    hint, _, shown = result.feedback.partition("\n")
    assert hint.startswith("Test 1 of 3 failed: ")
    assert shown.startswith("Input:\n1\nExpected output:\n2\n")
    assert said in result.feedback


@pytest.mark.parametrize(
    ("printed", "expected", "passed"),
    [
        ("  *\n ***\n", "  *\n ***\n", 1),
        ("\n  *\n ***  \n\n", "  *\n ***", 1),
        ("  *\r\n ***\r\n", "  *\n ***\n", 1),
        ("*\n ***\n", "  *\n ***\n", 0),
        (" *\n***\n", "*\n***\n", 0),
        ("a\n\nb\n", "a\nb\n", 0),
        ("\n \n", "", 1),
    ],
)
def test_leading_spaces_count(printed, expected, passed):
    code = f"import sys; sys.stdout.write({printed!r})"
    assert report(code, {"inputs": [""], "outputs": [expected]}).passed == passed


def test_partial_credit_counts_every_test():
    half = "n = int(input())\nprint(2 * n if n < 5 else 0)"
    assert report(half, stop_early=False).passed == 2
    assert report("n = int(input())\nprint(2 * n if n > 5 else 0)").passed == 0


def test_the_longest_inputs_are_accepted():
    tests = {"inputs": ["1", "22222", "333"], "outputs": ["1", "22222", "wrong"]}
    assert report("print(input())", tests, max_tests=1)[:3] == (1, 1, "")
    assert report("print(input())", tests, max_tests=2).passed == 1


@pytest.mark.parametrize(
    "code",
    [
        "def add(a, b):\n    return a + b",
        "class Solution:\n    def add(self, a, b):\n        print('noise')\n        return a + b",
    ],
)
@pytest.mark.parametrize("given", [[[1, 2], [3, 4]], ["1\n2", "3\n4"]])
def test_functions_are_called(code, given):
    tests = {"fn_name": "add", "inputs": given, "outputs": [3, 7]}
    assert report(code, tests).passed == 2
    assert report(code.replace("+", "-"), tests).passed == 0
    assert report("x = 1", tests).passed == 0


@pytest.mark.parametrize(
    "tests",
    ["", "{", "[]", {}, {"inputs": ["1"]}, {"inputs": ["1"], "outputs": []}, None, 7, [{"input": "1"}]],
)
def test_tests_of_no_known_form_are_rejected(tests):
    with pytest.raises(DataError):
        read_tests(tests)


@pytest.mark.parametrize("end", ["exit()", "quit()", "exit(0)", "import sys; sys.exit()"])
def test_a_program_may_end_itself(end):
    assert report(f"{RIGHT}\n{end}\nprint('never')").passed == 3
    assert report(f"{RIGHT}\nexit(1)").passed == 0


def test_a_uniformly_indented_program_runs():
    assert report("    n = int(input())\n    if n:\n        print(2 * n)\n").passed == 3


@pytest.mark.parametrize(
    "code",
    [
        "def add(numbers: List[int]) -> Optional[int]:\n    return sum(Counter(numbers).elements())",
        "from __future__ import annotations\ndef add(n: list[int]) -> int:\n    return reduce(xor, n)",
        "def add(numbers):\n    return math.floor(sum(numbers))",
        "def add(numbers):\n    return int(np.sum(numbers))",
        "import numpy\ndef add(numbers):\n    return int(numpy.array(numbers).sum())",
    ],
)
def test_functions_may_use_the_names_that_gem_imports(code):
    result = report(code, {"fn_name": "add", "inputs": [[[1, 2]], [[3]]], "outputs": [3, 3]})
    assert result[:3] == (2, 2, "")


def test_line_numbers_of_a_function_stay_right():
    tests = {"fn_name": "add", "inputs": [[1]], "outputs": [1]}
    assert 'program.py", line 2, in add' in report("def add(n):\n    return n / 0", tests).feedback


def test_programs_may_import_numpy_and_sympy_where_installed():
    assert report("import numpy as np\nprint(np.array([2]).sum() * int(input()))").passed == 3
    pytest.importorskip("sympy")
    code = "from sympy import Symbol\nx = Symbol('x')\nprint((2 * x).subs(x, int(input())))"
    assert report(code, {"inputs": ["4"], "outputs": ["8"]}).passed == 1


HOSTILE = [
    b"", b"[", b"3 3", b"3\n[3]", b"[3]{}", b"\xff\xfe", b"\x003", b"'3'", b"NaN", b"Infinity", b"-Infinity",
    b"1e999", b"9" * 5_000, b"-" + b"9" * 400, b"[" * 100_000, b"[" * 900 + b"]" * 900,
    b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    b'{"gem-core:set": 5}', b'{"gem-core:set": {"a": 1}}', b'{"gem-core:set": [[[]], {"a": null}]}',
    b'{"gem-core:set": [' + b"[" * 900 + b"]" * 900 + b"]}", b'{"gem-core:set": null, "a": 1}',
    b"null", b"true", b'"3"',
    b"\xef\xbb\xbf3", b'"\\ud800"', b'{"3": 3, "3": 3}', b"gem-core-result:3",
]  # fmt: skip


@pytest.mark.parametrize("expected", [3, 1.5, "x", [1, [2]], {"a": 1}, [[]]])
def test_a_foreign_result_is_wrong_and_no_exception(expected):
    tests = read_tests({"fn_name": "f", "inputs": [[1]], "outputs": [expected]})
    runner = _Runner("", tests, ProgramLimits())
    ended = RunResult("", "", "ok", 0, 0.0, False, "namespace")
    assert not runner.passes(ended, tests.tests[0])
    for content in HOSTILE:
        result = ended._replace(files={"result.json": content})
        assert not runner.passes(result, tests.tests[0]), content[:40]
        assert runner.feedback(result, tests.tests[0])


@pytest.mark.parametrize(
    "write",
    ["os.write(1, b'gem-core-result:' + b'[' * 100_000)", "open('result.json', 'w').write('[' * 100_000)",
     "open('result.json', 'w').write('9' * 5000)", "open('result.json', 'wb').write(b'\\xff')",
     "os.mkdir('result.json')", "os.symlink('/dev/zero', 'result.json')", "print('3\\n' * 9)",
     "open('result.json', 'w').write('3 3')"],
)  # fmt: skip
@pytest.mark.parametrize("end", ["os._exit(0)", "raise SystemExit(0)"])
def test_a_program_that_writes_the_result_itself_gets_0(write, end):
    env = CodeEnv(
        dataset=[{"problem": "Add.", "tests": {"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]}}]
    )
    env.reset(seed=0)
    assert env.step(f"```python\nimport os\n{write}\n{end}\n```")[1] == 0.0
