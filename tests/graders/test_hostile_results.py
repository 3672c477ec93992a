"""Results that a program forges: wrong answers, never exceptions."""

import pytest

from gem_envs.graders._program_tests import ProgramTest, ProgramTests
from gem_envs.graders._programs import _Runner
from gem_envs.sandbox import RunResult


@pytest.mark.parametrize(
    "forged",
    [
        b"[" * 100_000,
        b"[" * 50_000 + b"]" * 50_000,
        b'{"a":' * 5000 + b"3" + b"}" * 5000,
        b"[" * 150 + b"3" + b"]" * 150,
        b"",
        b"\xff\xfe\x00",
        b'"\\ud800',
        b"3" * 100_000,
        b"NaN",
        b'{"gem-core:set": 3}',
        b'{"gem-core:set": [[]]}',
    ],
    ids=lambda forged: str(forged[:12]),
)
def test_a_forged_result_is_wrong(forged):
    test = ProgramTest("[1, 2]", "3")
    runner = object.__new__(_Runner)
    runner.tests = ProgramTests((test,), function="add")
    result = RunResult("", "", "ok", 0, 0.1, False, "namespace", files={"result.json": forged})
    assert not runner.passes(result, test)
    assert runner.feedback(result, test)
