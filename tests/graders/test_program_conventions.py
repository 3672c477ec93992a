"""What right programs do: how they read, write, end, and define and return things."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gem_core.errors import EnvError
from gem_envs.datasets import CodeEnv
from gem_envs.graders._program_tests import read_tests
from gem_envs.graders._programs import program_limits, run_tests

SUM = {"inputs": ["3\n4 5\n"], "outputs": ["12\n"]}


def passes(code, tests, **kwargs):
    result = run_tests(code, read_tests(tests), **kwargs)
    return result.passed == result.tests


def call(code, arguments, expected, name="f"):
    return passes(code, {"fn_name": name, "inputs": [arguments, arguments], "outputs": [expected, expected]})


@pytest.mark.parametrize(
    "code",
    [
        "import sys\nprint(sum(map(int, sys.stdin.buffer.read().split())))",
        "import sys\nprint(sum(map(int, sys.stdin.read().split())))",
        "import sys\nread = sys.stdin.readline\nn = int(read())\nprint(n + sum(map(int, read().split())))",
        "print(sum(map(int, open(0).read().split())))",
        "print(sum(map(int, open('/dev/stdin').read().split())))",
        "import pathlib\nprint(sum(map(int, pathlib.Path('/dev/stdin').read_text().split())))",
        "print(sum(map(int, open('/proc/self/fd/0').read().split())))",
        "print(sum(map(int, open('/dev/fd/0', 'rb').read().split())))",
        "name = 'stdin'\nprint(sum(map(int, open('/dev/' + name).read().split())))",
        "import os\nprint(sum(map(int, os.read(os.open('/dev/stdin', os.O_RDONLY), 1000).split())))",
        "import os\nprint(sum(map(int, os.fdopen(0).read().split())))",
        "import os\nprint(sum(map(int, os.fdopen(os.dup(0), 'rb').read().split())))",
        "import sys\nprint(sum(map(int, sys.__stdin__.readlines()[1].split())) + 3)",
        "import fileinput as f\nprint(sum(int(w) for line in f.input('/dev/stdin') for w in line.split()))",
        "import sys\nprint(sum(map(int, open(sys.stdin.fileno()).read().split())))",
        "import sys\nblocks = iter(lambda: sys.stdin.buffer.raw.read(2), b'')\n"
        "print(sum(map(int, b''.join(blocks).split())))",
        "import mmap\nprint(sum(map(int, mmap.mmap(0, 0, access=mmap.ACCESS_READ)[:].split())))",
        "import csv, sys\nprint(sum(int(w) for row in csv.reader(sys.stdin, delimiter=' ') for w in row))",
        "open('/proc/self/fd/1', 'w').write(str(sum(map(int, open(0).read().split()))))",
        "import sys\nsys.stdin = open('/dev/stdin')\nprint(int(input()) + sum(map(int, input().split())))",
        "import io, os\nprint(sum(map(int, io.BytesIO(os.read(0, os.fstat(0).st_size)).read().split())))",
        "import fileinput\nprint(sum(int(w) for line in fileinput.input() for w in line.split()))",
        "open('/dev/stdout', 'w').write(str(sum(map(int, open(0).read().split()))))",
        "import os\nos.write(1, b'12\\n')",
        "print(12, end='')",
        "print('12  ')",
        "print(12.0)",
        "import sys\nsys.stdout = open(1, 'w')\nprint(12)",
        "def main():\n    print(12)\nif __name__ == '__main__':\n    main()",
        "import sys\ndef main():\n    print(12)\nif __name__ == '__main__':\n    sys.exit(main())",
        "print(12)\nexit(0)",
        "import os\nprint(12, flush=True)\nos._exit(0)",
        "import threading\nthreading.Thread(target=lambda: print(12)).start()",
        "import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(2**29)\n"
        "t = threading.Thread(target=lambda: print(12))\nt.start()\nt.join()",
        "import atexit, io, sys\nsys.stdout = out = io.StringIO()\n"
        "atexit.register(lambda: sys.__stdout__.write(out.getvalue()))\nprint(12)",
    ],
)
def test_every_way_of_reading_and_writing_works(code):
    assert passes(code, SUM)
    assert not passes(code.replace("12", "13").replace("sum(", "1 + sum(").replace("n + 1", "n + 2"), SUM)


@pytest.mark.parametrize(
    "code", ["print(12)\nexit(1)", "print(12)\n1 / 0", "print(13)", "", "def main():\n    print(12)"]
)
def test_a_program_that_fails_is_wrong(code):
    assert not passes(code, SUM)


def test_a_long_output_is_no_fault():
    lines = 200_000
    expected = "".join(f"{n}\n" for n in range(lines))
    assert len(expected) > 2**20
    tests = {"inputs": [str(lines)], "outputs": [expected]}
    assert passes("print(*range(int(input())), sep='\\n')", tests)
    assert not passes("print(*range(int(input()) + 1), sep='\\n')", tests)


@pytest.mark.parametrize(
    ("code", "arguments", "expected"),
    [
        ("def f(a):\n    return (1, (2, 3))", [0], [1, [2, 3]]),
        ("def f(a):\n    return (x for x in [1, 2])", [0], [1, 2]),
        ("def f(a):\n    return map(abs, a)", [[-1, 2]], [1, 2]),
        ("def f(a):\n    return deque(a)", [[1, 2]], [1, 2]),
        ("def f(a):\n    return {2, 1}", [0], [1, 2]),
        ("def f(a):\n    return dict(Counter(a))", ["aab"], {"a": 2, "b": 1}),
        ("def f(a):\n    return {1: 2}", [0], {"1": 2}),
        ("def f(a):\n    return a[1]", [{"1": 5}], 5),
        ("def f(a):\n    return 0.1 + 0.2", [0], 0.3),
        ("def f(a):\n    return fractions.Fraction(1, 2)", [0], 0.5),
        ("def f(a):\n    return True", [0], True),
        ("def f(a):\n    return None", [0], None),
        ("def f(a):\n    return 10**5000 // 10**4999", [0], 10),
        ("def f(a):\n    print('x' * 2_000_000)\n    return 1", [0], 1),
        ("def f(a):\n    return 1\nif __name__ == '__main__':\n    print(f(int(input())))", [0], 1),
        ("f = lambda a: a", [7], 7),
        ("@lru_cache(None)\ndef f(a):\n    return a if a < 2 else f(a - 1)", [3000], 1),
        ("class Solution:\n    def f(self, a):\n        return a", [7], 7),
        ("class Solution:\n    @staticmethod\n    def f(a):\n        return a", [7], 7),
        ("def f(a):\n    return 0\nclass Solution:\n    def f(self, a):\n        return a", [7], 7),
        ("class Answer:\n    def f(self, a):\n        return a", [7], 7),
        ("class Outer:\n    class Inner:\n        def f(self, a):\n            return a", [7], 7),
        ("import dataclasses as d\n@d.dataclass\nclass P:\n    x: int\ndef f(a):\n    return P(a).x", [7], 7),
    ],
)  # fmt: skip
def test_functions_are_found_and_their_results_are_read(code, arguments, expected):
    assert call(code, arguments, expected)
    assert not call(code, arguments, "other")


def test_results_of_numpy_are_read():
    pytest.importorskip("numpy")
    for expression, expected in (
        ("np.int64(3)", 3), ("np.float64(0.5)", 0.5), ("np.bool_(True)", True),
        ("np.array([[1, 2]])", [[1, 2]]),
        ("[np.int64(1), (np.float32(2),)]", [1, [2.0]]), ("{'a': np.arange(2)}", {"a": [0, 1]}),
    ):  # fmt: skip
        assert call(f"import numpy as np\ndef f(a):\n    return {expression}", [0], expected), expression


def test_a_function_is_found_by_a_path():
    code = "class Solution:\n    def f(self, a):\n        return a"
    for name in ("f", "Solution.f", "Solution().f"):
        assert call(code, [7], 7, name), name


@pytest.mark.parametrize("code", ["", "x = 1", "import math", "def g(a, b):\n    return 2"])
def test_an_imported_name_is_not_the_functions(code):
    tests = {"fn_name": "gcd", "inputs": [[4, 6]], "outputs": [2]}
    assert not passes(code, tests)
    assert passes("def gcd(a, b):\n    return math.gcd(a, b)", tests)


def test_a_result_in_a_list_of_one_is_unpacked_only_where_all_are_packed():
    packed = {"fn_name": "f", "inputs": [[1], [2]], "outputs": [[1], [2]]}
    assert passes("def f(a):\n    return a", packed)
    assert passes("def f(a):\n    return [a]", packed)
    mixed = {"fn_name": "f", "inputs": [[1], [2]], "outputs": [[1], [2, 2]]}
    assert passes("def f(a):\n    return [a] * a", mixed)
    assert run_tests("def f(a):\n    return a", read_tests(mixed)).passed == 0


STATEMENTS = ["assert f(1) == 2", "assert f(2) == 3"]


@pytest.mark.parametrize(
    "code",
    [
        "def f(a):\n    return a",
        "import os\nos._exit(0)",
        "raise SystemExit(0)",
        "def f(a):\n    raise SystemExit(0)",
        "def f(a):\n    import os\n    os._exit(0)",
        "class Any:\n    def __eq__(self, other):\n        return True\ndef f(a):\n    return Any()",
        "class Any(int):\n    def __eq__(self, other):\n        return True\ndef f(a):\n    return Any()",
        "open('result.json', 'w').write('1')\nimport os\nos._exit(0)",
        "",
    ],
)
def test_statements_need_a_program_that_makes_them_true(code):
    assert not passes(code, STATEMENTS)
    assert passes("def f(a):\n    return a + 1", STATEMENTS)


def test_a_setup_may_use_the_classes_of_the_program():
    from gem_envs.graders._program_tests import row_tests

    row = {"test_list": ["assert f(root) == 1"], "test_setup_code": "root = Node(1)"}
    code = "class Node:\n    def __init__(self, v):\n        self.v = v\ndef f(n):\n    return n.v"
    assert run_tests(code, row_tests(row, "test_list")).passed == 1


SPIN, SLEEP = "while True: pass", "import time\ntime.sleep(1000)"


def test_cpu_time_decides_and_the_wall_clock_does_not():
    tests = read_tests({"inputs": ["", ""], "outputs": ["1", "1"]})
    spins = run_tests(SPIN, tests, limits=replace(program_limits(1), wall_seconds=600))
    assert (spins.undecided, spins.passed) == (False, 0)
    assert spins.hint == "Test 1 of 2 failed: the program ran too long."
    sleeps = run_tests(SLEEP, tests, limits=replace(program_limits(600), wall_seconds=0.3), stop_early=False)
    assert sleeps.undecided
    assert sleeps.hint == "Test 1 of 2 is undecided: the program waited too long."


def test_without_a_verdict_the_episode_fails_and_pays_nothing():
    env = CodeEnv(dataset=[{"problem": "p", "tests": SUM}])
    env.limits = replace(env.limits, wall_seconds=0.3)
    env.reset(seed=0)
    with pytest.raises(EnvError, match="is undecided: the program waited too long"):
        env.step(f"```python\n{SLEEP}\n```")


@pytest.mark.parametrize("timeout", [0.5, 1, 5, 30])
def test_the_wall_clock_limit_is_many_times_as_long(timeout):
    limits = CodeEnv(dataset=[{"problem": "p", "tests": SUM}], timeout=timeout).limits
    assert limits.cpu_seconds == timeout
    assert limits.wall_seconds >= 20 * timeout
