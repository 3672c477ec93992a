"""Grader of programs: runs tests from standard input to standard output, or calls of one function.

Tests have the formats of common datasets: ``{"inputs": [...], "outputs": [...]}`` or a list of
``{"input": ..., "output": ...}``, also as JSON text; ``fn_name`` next to them names a function to call with
the arguments in each input. Each test runs in its own process, at the strongest fast isolation level that
works on this machine (see `gem_core.sandbox.levels`).
"""

from __future__ import annotations

import builtins
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from textwrap import dedent
from typing import Any, NamedTuple

from gem_core._util.messages import error_line
from gem_core.errors import DataError
from gem_core.graders.base_imports import with_base_imports
from gem_core.sandbox import ISOLATED, ProgramLimits, RunResult, open_sandbox
from gem_core.sandbox.packages import mentioned_packages

_MARK = "gem-core-result:"
_DRIVER = """
import json as _json, sys as _sys
_arguments = _json.loads(_sys.stdin.readline())
_target = Solution() if "Solution" in globals() and not callable(globals().get({name!r})) else None
_result = (getattr(_target, {name!r}) if _target else globals()[{name!r}])(*_arguments)
_sys.stdout.write({mark!r} + _json.dumps(_result, default=list) + "\\n")
"""


class ProgramTest(NamedTuple):
    """A test of a program."""

    stdin: str
    """Standard input, or the arguments as a JSON list."""
    expected: str
    """Standard output, or the result as JSON."""


class ProgramTests(NamedTuple):
    """All tests of a task."""

    tests: tuple[ProgramTest, ...]
    function: str | None
    """Name of the function to call; None for programs that read and write."""


class Report(NamedTuple):
    """Result of running the tests of a program."""

    passed: int
    tests: int
    feedback: str
    """Description of the first failing test; empty if all pass."""

    @property
    def hint(self) -> str:
        """How the first failing test failed, without any data of the test; empty if all pass."""
        return self.feedback.partition("\n")[0]


def read_tests(data: Any) -> ProgramTests:
    """Read the tests in a column of a dataset.

    Raises:
        DataError: The format is unknown, or there are no tests.
    """
    try:
        if isinstance(data, (str, bytes)):
            data = json.loads(data)
        function = None
        if isinstance(data, Mapping):
            function = data.get("fn_name") or None
            pairs = list(zip(data["inputs"], data["outputs"], strict=True))
        else:
            pairs = [(test["input"], test["output"]) for test in data]
            function = next((test.get("fn_name") for test in data if test.get("fn_name")), None)
        form = _call if function else _stream
        tests = tuple(ProgramTest(*form(inputs, expected)) for inputs, expected in pairs)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            "expected equally many inputs and outputs, or a list of objects with 'input' and 'output' "
            f"({error_line(error)})"
        ) from error
    if not tests:
        raise DataError("the list of tests is empty")
    return ProgramTests(tests, function)


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
        tests: Tests of the task.
        max_tests: Maximum number of tests to run; the tests with the longest inputs are chosen. None runs
            all.
        stop_early: Whether to stop at the first failure, for callers that only need to know whether all
            tests pass.
        limits: Resource limits of each test. None uses the defaults of the sandbox.
    """
    code = dedent(code)
    selected = list(tests.tests)
    if max_tests is not None and len(selected) > max_tests:
        selected = sorted(selected, key=lambda test: len(test.stdin), reverse=True)[:max_tests]
    if tests.function is not None:
        code = with_base_imports(code) + _DRIVER.format(name=tests.function, mark=_MARK)
    sandbox = open_sandbox(packages=mentioned_packages(code))
    if sandbox.level != "process":  # level "process" counts all processes of the user
        limits = replace(limits or ISOLATED, processes=ISOLATED.processes)
    passed, feedback = 0, ""
    for number, test in enumerate(selected, 1):
        result = sandbox.run(code, stdin=test.stdin, limits=limits)
        if _passes(result, test, tests.function is not None):
            passed += 1
            continue
        where = f"Test {number} of {len(selected)} failed: {_failure(result)}."
        feedback = feedback or f"{where}\n{_feedback(result, test)}"
        if stop_early:
            break
    return Report(passed, len(selected), feedback)


def _passes(result: RunResult, test: ProgramTest, called: bool) -> bool:
    if result.ending != "ok" or result.cut:
        return False
    if not called:
        return _lines(result.stdout) == _lines(test.expected)
    _, mark, text = result.stdout.rpartition(_MARK)
    try:
        value, reference = json.loads(text), json.loads(test.expected)
    except ValueError:
        return False
    # Two of the known datasets wrap the result in a list of one value.
    return bool(mark) and bool(value == reference or [value] == reference)


def _lines(text: str) -> list[str]:
    """Return the lines, without trailing whitespace and without empty lines at the beginning and the end."""
    lines = [line.rstrip() for line in text.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    return lines[next((number for number, line in enumerate(lines) if line), 0) :]


def _feedback(result: RunResult, test: ProgramTest) -> str:
    lines = [f"Input:\n{_short(test.stdin)}", f"Expected output:\n{_short(test.expected)}"]
    if result.ending == "timeout":
        lines.append("The program ran too long.")
    elif result.ending != "ok":
        lines.append(f"The program failed:\n{_short(result.stderr.strip()[-400:]) or result.exit_code}")
    elif result.cut:
        lines.append("The program wrote too much.")
    else:
        lines.append(f"Output:\n{_short(result.stdout.rpartition(_MARK)[2])}")
    return "\n".join(lines)


def _failure(result: RunResult) -> str:
    """Return how a program failed, without its output, its message, or a name that it chose."""
    if result.ending == "timeout":
        return "the program ran too long"
    if result.ending != "ok":
        name = re.match(r"\w*", result.stderr.strip().rpartition("\n")[2])
        kind = getattr(builtins, name[0] if name else "", None)
        known = isinstance(kind, type) and issubclass(kind, BaseException)
        return f"the program raised {kind.__name__}" if known else "the program failed"  # type: ignore[union-attr]
    return "the program wrote too much" if result.cut else "the output is wrong"


def _short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= 400 else f"{text[:400]} ..."


def _stream(inputs: Any, expected: Any) -> tuple[str, str]:
    return _text(inputs), _text(expected)


def _text(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "\n".join(map(str, value))
    return str(value)


def _call(inputs: Any, expected: Any) -> tuple[str, str]:
    if isinstance(inputs, str):  # one JSON argument per line
        inputs = [json.loads(line) for line in inputs.splitlines() if line.strip()]
    if isinstance(expected, str):
        expected = json.loads(expected)
    return json.dumps(inputs), json.dumps(expected)
