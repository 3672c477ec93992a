"""Grader of programs: runs tests from standard input to standard output, calls of a function, or statements.

`gem_core.graders.program_tests` reads the tests of the well-known data sets, `gem_core.graders.outputs` has
the rules by which outputs are compared, and `gem_core.graders.program_driver` calls functions inside the
sandbox. Each test runs in its own process, at the strongest fast isolation level that works on this machine
(see `gem_core.sandbox.levels`).

A test has a limit of CPU time, so its verdict does not depend on what else the machine does. The limit of
wall-clock time is many times as long, for programs that wait; a test that reaches it is undecided.
"""

from __future__ import annotations

import builtins
import json
import re
import secrets
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

from gem_core.graders.base_imports import base_imports
from gem_core.graders.outputs import read_json, same_output, same_value
from gem_core.graders.program_tests import ProgramTest, ProgramTests
from gem_core.sandbox import ISOLATED, ProgramLimits, RunResult, Sandbox, open_sandbox
from gem_core.sandbox.packages import mentioned_packages

_DRIVER = Path(__file__).with_name("program_driver.py")
_RESULT = "result.json"
_WALL = 20
"""Wall-clock limit as a multiple of the limit of CPU time."""
_LEAST_WALL = 60.0
_CPU_SECONDS = 5.0
_MEMORY = 2**30
"""Address space, in bytes; programs that recurse deeply reserve half of it for the stack of a thread."""


class Report(NamedTuple):
    """Result of running the tests of a program."""

    passed: int
    tests: int
    feedback: str
    """Description of the first failing test; empty if all pass."""
    undecided: bool = False
    """Whether a test reached the wall-clock limit, so that there is no verdict."""

    @property
    def hint(self) -> str:
        """How the first failing test failed, without any data of the test; empty if all pass."""
        return self.feedback.partition("\n")[0]


def program_limits(cpu_seconds: float) -> ProgramLimits:
    """Return the limits of a test: of CPU time, and of wall-clock time for a program that only waits."""
    wall_seconds = max(_LEAST_WALL, _WALL * cpu_seconds)
    return replace(ISOLATED, cpu_seconds=cpu_seconds, wall_seconds=wall_seconds, memory_bytes=_MEMORY)


def run_tests(
    code: str,
    tests: ProgramTests,
    *,
    max_tests: int | None = None,
    stop_early: bool = True,
    limits: ProgramLimits | None = None,
) -> Report:
    """Run a program on its tests.

    Args:
        code: Python source; common indentation is removed. It can import the standard library and, where they
            are installed, numpy and sympy. In tests of a function, the names of `base_imports` are imported.
        tests: Tests of the task. Their limits of time and memory replace lower ones in `limits`.
        max_tests: Maximum number of tests to run; the tests with the longest inputs are chosen. None runs
            all.
        stop_early: Whether to stop at the first failure, for callers that only need to know whether all
            tests pass. A test that reaches the wall-clock limit always stops the run.
        limits: Resource limits of each test. None uses `program_limits` of five seconds.
    """
    runner = _Runner(code, tests, limits or program_limits(_CPU_SECONDS))
    selected = list(tests.tests)
    if max_tests is not None and len(selected) > max_tests:
        selected = sorted(selected, key=lambda test: len(test.stdin), reverse=True)[:max_tests]
    passed, feedback = 0, ""
    for index, test in enumerate(selected, 1):
        result = runner.run(test)
        if result.wall:
            where = f"Test {index} of {len(selected)} is undecided: the program waited too long."
            return Report(passed, len(selected), where, undecided=True)
        if runner.passes(result, test):
            passed += 1
            continue
        where = f"Test {index} of {len(selected)} failed: {_failure(result)}."
        feedback = feedback or f"{where}\n{runner.feedback(result, test)}"
        if stop_early:
            break
    return Report(passed, len(selected), feedback)


class _Runner:
    """Runs one program on the tests of one task."""

    def __init__(self, code: str, tests: ProgramTests, limits: ProgramLimits) -> None:
        self.tests = tests
        self.limits = _with_own_limits(limits, tests)
        self.proof = secrets.token_hex(16)
        code = _completed(code, tests)
        self.code = code
        if self._is_called:
            self.code = f"{_DRIVER.read_text(encoding='utf-8')}\nmain({base_imports(code)!r}, {code!r})\n"
        self.sandbox: Sandbox = open_sandbox(packages=mentioned_packages(self.code))
        everywhere = self.sandbox.level == "process"  # which counts all processes of the user
        processes = (ProgramLimits() if everywhere else ISOLATED).processes
        self.limits = replace(self.limits, processes=processes)

    @property
    def _is_called(self) -> bool:
        return self.tests.function is not None or self.tests.statements is not None

    def run(self, test: ProgramTest) -> RunResult:
        """Run the program on a test; it may write at least twice as much as is expected of it."""
        size = 2 * len(test.expected.encode("utf-8", "surrogatepass"))
        limits = replace(
            self.limits,
            output_bytes=max(self.limits.output_bytes, size),
            file_bytes=max(self.limits.file_bytes, size),
        )
        if not self._is_called:
            return self.sandbox.run(self.code, stdin=test.stdin, limits=limits)
        files = {"request.json": self._request(test).encode()}
        return self.sandbox.run(self.code, files=files, fetch=(_RESULT,), limits=limits)

    def _request(self, test: ProgramTest) -> str:
        if self.tests.function is not None:  # the arguments are JSON already
            return f'{{"function": {json.dumps(self.tests.function)}, "arguments": {test.stdin}}}'
        assert self.tests.statements is not None
        return json.dumps({**self.tests.statements._asdict(), "test": test.stdin, "proof": self.proof})

    def passes(self, result: RunResult, test: ProgramTest) -> bool:
        """Return whether a program that has ended did what the test expects."""
        if result.ending != "ok":
            return False
        if not self._is_called:
            return not result.cut and same_output(result.stdout, test.expected, self.tests.rule)
        try:
            value = read_json(result.files[_RESULT])
        except (KeyError, ValueError):
            return False
        if self.tests.statements is not None:
            return bool(value == self.proof)
        expected = read_json(test.expected)
        return same_value(value, expected, self.tests.rule) or (
            self.tests.wrapped and same_value(value, expected[0], self.tests.rule)
        )

    def feedback(self, result: RunResult, test: ProgramTest) -> str:
        """Return the input, the expected output, and what the program did instead."""
        lines = [f"Input:\n{_short(test.stdin)}", f"Expected output:\n{_short(test.expected)}"]
        if result.ending == "timeout":
            lines.append("The program ran too long.")
        elif result.ending != "ok":
            lines.append(f"The program failed:\n{_short(result.stderr.strip()[-400:]) or result.exit_code}")
        elif result.cut and not self._is_called:
            lines.append("The program wrote too much.")
        else:
            output = (
                result.files[_RESULT].decode(errors="replace") if _RESULT in result.files else result.stdout
            )
            lines.append(f"Output:\n{_short(output)}")
        return "\n".join(lines)


def _with_own_limits(limits: ProgramLimits, tests: ProgramTests) -> ProgramLimits:
    seconds = max(limits.cpu_seconds, tests.cpu_seconds or 0)
    if seconds > limits.cpu_seconds:
        longer = limits.wall_seconds * seconds / limits.cpu_seconds
        limits = replace(limits, cpu_seconds=seconds, wall_seconds=longer)
    return replace(limits, memory_bytes=max(limits.memory_bytes, tests.memory_bytes or 0))


def _completed(code: str, tests: ProgramTests) -> str:
    """Return the program, joined to the beginning that the task gives if it only continues that."""
    statements = tests.statements
    if statements is not None and statements.entry_point:
        first = next((line for line in code.splitlines() if line.strip()), "")
        defines = re.search(
            rf"^\s*(?:async\s+)?(?:def|class)\s+{re.escape(statements.entry_point)}\b", code, re.M
        )
        if first[:1].isspace() and not defines:
            return f"{statements.prelude.rstrip()}\n{code}"
    return dedent(code)


def _failure(result: RunResult) -> str:
    """Return how a program failed, without its output, its message, or a name that it chose."""
    if result.ending == "timeout":
        return "the program ran too long"
    if result.ending != "ok":
        name = re.match(r"\w*", result.stderr.strip().rpartition("\n")[2])
        kind = getattr(builtins, name[0] if name else "", None)
        known = isinstance(kind, type) and issubclass(kind, BaseException)
        return f"the program raised {kind.__name__}" if known else "the program failed"  # type: ignore[union-attr]
    return (
        "the program wrote too much" if result.cut and _RESULT not in result.files else "the output is wrong"
    )


def _short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= 400 else f"{text[:400]} ..."
