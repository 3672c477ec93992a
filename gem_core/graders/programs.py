"""Whether a program passes its tests: standard input to standard output, or calls of one function.

Tests come in the forms that data sets use: ``{"inputs": [...], "outputs": [...]}`` or a list of
``{"input": ..., "output": ...}``, either as JSON text too; ``fn_name`` beside them names a function to be
called with each input's arguments. Each test runs in a process of its own, at the strongest fast level of the
sandbox that works on this machine (see `gem_core.sandbox.levels`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from gem_core._util.messages import error_line
from gem_core.errors import DataError
from gem_core.sandbox import ISOLATED, ProgramLimits, RunResult, open_sandbox

_MARK = "gem-core-result:"
_DRIVER = """
import json as _json, sys as _sys
_arguments = _json.loads(_sys.stdin.readline())
_target = Solution() if "Solution" in globals() and not callable(globals().get({name!r})) else None
_result = (getattr(_target, {name!r}) if _target else globals()[{name!r}])(*_arguments)
_sys.stdout.write({mark!r} + _json.dumps(_result, default=list) + "\\n")
"""


class ProgramTest(NamedTuple):
    """One test."""

    given: str
    """Standard input, or the arguments as a JSON list."""
    expected: str
    """Standard output, or the result as JSON."""


class ProgramTests(NamedTuple):
    """All tests of a task."""

    tests: tuple[ProgramTest, ...]
    function: str | None
    """Name of the function to call; None for programs that read and write."""


class Report(NamedTuple):
    """What a program achieved."""

    passed: int
    tests: int
    feedback: str
    """About the first test that failed; empty when none did."""


def read_tests(data: Any) -> ProgramTests:
    """Tests out of a data set's column.

    Raises:
        DataError: None of the known forms, or no test at all.
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
        tests = tuple(ProgramTest(*form(given, expected)) for given, expected in pairs)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"tests have to be inputs and outputs of equal number, or a list of input and output "
            f"({error_line(error)})"
        ) from error
    if not tests:
        raise DataError("there is not one test")
    return ProgramTests(tests, function)


def run_tests(
    code: str,
    given: ProgramTests,
    *,
    max_tests: int | None = None,
    stop_early: bool = True,
    limits: ProgramLimits | None = None,
) -> Report:
    """Run a program on its tests.

    Args:
        code: Python source.
        given: The tests.
        max_tests: Take the tests with the longest inputs only; None for all.
        stop_early: Stop at the first failure, where only all or nothing counts.
        limits: For each test; None for the sandbox's defaults.
    """
    tests = list(given.tests)
    if max_tests is not None and len(tests) > max_tests:
        tests = sorted(tests, key=lambda test: len(test.given), reverse=True)[:max_tests]
    if given.function is not None:
        code += _DRIVER.format(name=given.function, mark=_MARK)
    sandbox = open_sandbox()
    if sandbox.level != "process":  # which counts all processes of the user
        limits = replace(limits or ISOLATED, processes=ISOLATED.processes)
    passed, feedback = 0, ""
    for number, test in enumerate(tests, 1):
        result = sandbox.run(code, stdin=test.given, limits=limits)
        if _passes(result, test, given.function is not None):
            passed += 1
            continue
        feedback = feedback or f"Test {number} of {len(tests)} failed.\n{_feedback(result, test)}"
        if stop_early:
            break
    return Report(passed, len(tests), feedback)


def _passes(result: RunResult, test: ProgramTest, called: bool) -> bool:
    if result.ending != "ok" or result.cut:
        return False
    if not called:
        return _lines(result.stdout) == _lines(test.expected)
    _, mark, text = result.stdout.rpartition(_MARK)
    try:
        value, wanted = json.loads(text), json.loads(test.expected)
    except ValueError:
        return False
    # A list of one value around the result is how two of the known data sets write it.
    return bool(mark) and bool(value == wanted or [value] == wanted)


def _lines(text: str) -> list[str]:
    """Return the lines, without trailing whitespace and without empty lines at the beginning and the end."""
    lines = [line.rstrip() for line in text.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    return lines[next((number for number, line in enumerate(lines) if line), 0) :]


def _feedback(result: RunResult, test: ProgramTest) -> str:
    shown = [f"Input:\n{_short(test.given)}", f"Expected output:\n{_short(test.expected)}"]
    if result.ending == "timeout":
        shown.append("The program ran too long.")
    elif result.ending != "ok":
        shown.append(f"The program failed:\n{_short(result.stderr.strip()[-400:]) or result.exit_code}")
    elif result.cut:
        shown.append("The program wrote too much.")
    else:
        shown.append(f"Output:\n{_short(result.stdout.rpartition(_MARK)[2])}")
    return "\n".join(shown)


def _short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= 400 else f"{text[:400]} ..."


def _stream(given: Any, expected: Any) -> tuple[str, str]:
    return _text(given), _text(expected)


def _text(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "\n".join(map(str, value))
    return str(value)


def _call(given: Any, expected: Any) -> tuple[str, str]:
    if isinstance(given, str):  # one argument a line, each as JSON
        given = [json.loads(line) for line in given.splitlines() if line.strip()]
    if isinstance(expected, str):
        expected = json.loads(expected)
    return json.dumps(given), json.dumps(expected)
