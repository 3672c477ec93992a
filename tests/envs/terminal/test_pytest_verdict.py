"""Which tests have to pass, and the evidence that they did."""

from __future__ import annotations

import json

import pytest

from gem_core.errors import DataError
from gem_envs._terminal.pytest_verdict import printed_verdict, required_tests, verdict
from gem_envs.sandbox import File


def required(text, name="test_a.py"):
    return required_tests({name: File(text.encode()), "helper.py": File(b"def test_other(): pass")})


@pytest.mark.parametrize(
    ("text", "tests"),
    [
        ("def test_a(): pass\nasync def testb(): pass\ndef helper(): pass", {"test_a": 1, "testb": 1}),
        ("class TestA:\n def test_b(self): pass\n class TestC:\n  def test_d(self): pass",
         {"TestA::test_b": 1, "TestA::TestC::test_d": 1}),
        ("class A(unittest.TestCase):\n def test_b(self): pass\n def setUp(self): pass", {"A::test_b": 1}),
        ("class A:\n def test_b(self): pass", {}),
        ("class TestA:\n def __init__(self): pass\n def test_b(self): pass", {}),
        ("class TestA:\n __test__ = False\n def test_b(self): pass", {}),
        ("if True:\n def test_a(): pass\nelse:\n def test_b(): pass", {"test_a": 1, "test_b": 1}),
        ("try:\n import x\nexcept ImportError:\n def test_a(): pass\nfinally:\n def test_b(): pass",
         {"test_a": 1, "test_b": 1}),
        ("def outer():\n def test_a(): pass", {}),
        ("@pytest.mark.skip\ndef test_a(): pass\n@pytest.mark.xfail(reason='x')\ndef test_b(): pass", {}),
        ("@pytest.fixture\ndef test_data(): pass\n@unittest.skip('x')\ndef test_b(): pass", {}),
        ("@pytest.mark.skipif(x, reason='')\ndef test_a(): pass", {"test_a": 1}),
        ("pytestmark = pytest.mark.skip\ndef test_a(): pass", {}),
        ("pytestmark = [pytest.mark.slow]\ndef test_a(): pass", {"test_a": 1}),
        ("@pytest.mark.parametrize('x', [1, 2, pytest.param(3, marks=[skip])])\ndef test_a(x): pass",
         {"test_a": 2}),
        ("@pytest.mark.parametrize('x', (1, 2))\n@pytest.mark.parametrize('y', argvalues=[1, 2, 3])\n"
         "def test_a(x, y): pass", {"test_a": 6}),
        ("@pytest.mark.parametrize('x', CASES)\ndef test_a(x): pass", {"test_a": 1}),
        ("@pytest.mark.parametrize('x', [*CASES, 1])\ndef test_a(x): pass", {"test_a": 1}),
        ("@pytest.mark.parametrize('x', [1, 2])\nclass TestA:\n def test_b(self, x): pass",
         {"TestA::test_b": 2}),
        ("", {}),
    ],
)  # fmt: skip
def test_tests_that_have_to_pass(text, tests):
    assert required(text) == {f"test_a.py::{name}": cases for name, cases in tests.items()}


def test_only_test_files_count():
    assert required("def test_a(): pass", "checks.py") == {}
    with pytest.raises(DataError, match=r"its test file test_a\.py cannot be read"):
        required("def test_a(:")


def lines(*words, sign="s1"):
    return "".join(f"\n{sign} {json.dumps(word)}\n" for word in words)


A, B, END = ("t.py::a", "passed"), ("t.py::b", "passed"), ("status", 0)


@pytest.mark.parametrize(
    ("output", "failed"),
    [
        (lines(A, B, END), []),
        (f"noise{lines(A)}..{lines(B)}{lines(END)}more", []),
        (lines(A, END), ["t.py::b"]),
        ("", ["t.py::a", "t.py::b"]),
        (lines(A, B), ["the tests did not run to their end"]),
        (lines(A, B, ("status", 1)), ["the tests did not run to their end"]),
        (lines(A, B, END, END), ["the tests did not run to their end"]),
        (lines(A, B, END, sign="s2"), ["t.py::a", "t.py::b"]),
        (lines(A, B, END, sign="s11"), ["t.py::a", "t.py::b"]),
        (f"x{lines(A, B, END).strip()}", ["t.py::a"]),
        (lines(A, B, ("t.py::b", "failed"), END), ["t.py::b"]),
        (lines(A, ("t.py::b", "skipped"), END), ["t.py::b"]),
        (lines(A, ("t.py::b", "xfailed"), END), ["t.py::b"]),
        (lines(A, B, ("t.py::c", "failed"), END), ["t.py::c"]),
        (lines(A, ("t.py::b[1]", "passed"), ("t.py::b[2]", "failed"), END), ["t.py::b[2]"]),
        (f"{lines(A, B, END)}\ns1 [1]\n", [""]),
        (f"{lines(A, B, END)}\ns1 {'[' * 100_000}\n", [""]),
    ],
)
def test_every_test_has_to_be_seen_to_pass(output, failed):
    grade = verdict(output, "s1", {"t.py::a": 1, "t.py::b": 1})
    assert grade.failed == failed
    assert grade.reward == float(not failed)


def test_the_number_of_cases_counts():
    case = [(f"t.py::a[{number}]", "passed") for number in range(3)]
    assert verdict(lines(*case, END), "s1", {"t.py::a": 3}).failed == []
    assert verdict(lines(*case[:2], case[0], END), "s1", {"t.py::a": 3}).failed == ["t.py::a"]
    assert verdict(lines(END), "s1", {}).reward == 0.0


def test_a_script_shows_its_tests():
    output = "PASSED ../tests/test_a.py::test_b\nPASSED test_a.py::test_c[1]\nFAILED test_a.py::test_d\n"
    wanted = {"test_a.py::test_b": 1, "test_a.py::test_c": 2, "test_a.py::test_d": 1}
    assert printed_verdict(output, wanted) == ["test_a.py::test_c", "test_a.py::test_d"]
    assert printed_verdict(output, {"test_a.py::test_b": 1}) == []
