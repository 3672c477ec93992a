"""Grader of programs: runs tests from standard input to standard output, calls of a function, or statements.

`gem_envs.graders._program_tests` reads the tests of the well-known datasets, `gem_envs.graders._outputs` has
the rules by which outputs are compared, and `gem_envs.graders._guest` is what runs inside the sandbox. Each
test runs in its own process, at the strongest fast isolation level that works on this machine (see
`gem_envs.sandbox._levels`).

A test passes on evidence that the program cannot make up. Expected outputs and results stay in this process,
which compares them. Statements run in a second process next to the program's
(`gem_envs.graders._guest.statements`).

A test has a limit of CPU time, so its verdict does not depend on what else the machine does. The limit of
wall-clock time is many times as long, for programs that wait; a test that reaches it is undecided.
"""

from __future__ import annotations

import ast
import builtins
import json
import marshal
import re
import secrets
import signal
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

from gem_envs.graders._outputs import read_json, same_output, same_value
from gem_envs.graders._program_tests import ProgramTest, ProgramTests
from gem_envs.graders._supplied import guarded, supplied_names
from gem_envs.sandbox import ProgramLimits, RunResult, open_sandbox
from gem_envs.sandbox._limits import ISOLATED
from gem_envs.sandbox._packages import mentioned_packages
from gem_envs.sandbox._program import Sandbox

_GUEST = Path(__file__).with_name("_guest")
_BOOT = """
import marshal, sys, types
sys.modules["grading"] = types.ModuleType("grading")
for name, code in {modules!r}:
    module = sys.modules["grading." + name] = types.ModuleType("grading." + name)
    exec(marshal.loads(code), module.__dict__)
module.{call}
"""
_RESULT = "result.json"
_OUT_OF_TIME = 128 + signal.SIGXCPU  # `gem_envs.graders._guest.statements.OUT_OF_TIME`
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
            are installed, numpy and sympy. Names of `gem_envs.graders._supplied` need no import.
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
        self.code = _completed(code, tests)
        self.names = self._names()
        self.source = self._source()
        mentions = [self.names, self.code]
        if tests.statements is not None:
            mentions += [*tests.statements[:2], *(test.stdin for test in tests.tests)]
        self.sandbox: Sandbox = open_sandbox(packages=mentioned_packages("\n".join(mentions)))
        everywhere = self.sandbox.level == "process"  # which counts all processes of the user
        processes = (ProgramLimits() if everywhere else ISOLATED).processes
        self.limits = replace(self.limits, processes=processes)

    def _names(self) -> str:
        """Return the statements that import the names which the program need not import."""
        if self.tests.statements is not None:
            return supplied_names("gem", self.code)
        if self.tests.function is not None:
            return supplied_names("gem", self.code, self.tests.rule.names)
        return supplied_names(self.tests.rule.names, self.code)

    def _source(self) -> str:
        """Return what the sandbox runs: the program, or what runs the program."""
        rule = self.tests.rule
        if self.tests.statements is not None:
            return _booted(("load", "values", "peer", "statements"), "main()")
        if self.tests.function is not None:
            return _booted(("load", "function"), f"main({self.names!r}, {self.code!r})")
        if rule.names == "none" and rule.exit != "call":
            return self.code
        ends, deep = rule.exit == "call", rule.name == "livecodebench"
        return _booted(("load",), f"run_script({self.names!r}, {self.code!r}, {ends}, {deep})")

    @property
    def _is_called(self) -> bool:
        return self.tests.function is not None

    def run(self, test: ProgramTest) -> RunResult:
        """Run the program on a test; it may write at least twice as much as is expected of it."""
        size = 2 * len(test.expected.encode("utf-8", "surrogatepass"))
        limits = replace(
            self.limits,
            output_bytes=max(self.limits.output_bytes, size),
            file_bytes=max(self.limits.file_bytes, size),
        )
        if self.tests.function is None and self.tests.statements is None:
            return self.sandbox.run(self.source, stdin=test.stdin, limits=limits)
        files = {"request.json": self._request(test).encode("utf-8", "surrogatepass")}
        fetch = (_RESULT,) if self._is_called else ()
        return self.sandbox.run(self.source, files=files, fetch=fetch, limits=limits)

    def _request(self, test: ProgramTest) -> str:
        if self.tests.function is not None:  # the arguments are JSON already
            return f'{{"function": {json.dumps(self.tests.function)}, "arguments": {test.stdin}}}'
        statements = self.tests.statements
        assert statements is not None
        return json.dumps(
            {
                **statements._asdict(),
                "test": test.stdin,
                "code": self.code,
                "names": self.names,
                **({} if statements.entry_point else _names_of(f"{statements.setup}\n{test.stdin}")),
                "proof": self.proof,
            }
        )

    def passes(self, result: RunResult, test: ProgramTest) -> bool:
        """Return whether a program that has ended did what the test expects."""
        if result.ending != "ok" and not (result.ending == "failed" and self._may_fail(test)):
            return False
        if self.tests.statements is not None:
            return result.stdout == self.proof
        if not self._is_called:
            return not result.cut and same_output(result.stdout, test.expected, self.tests.rule)
        expected = read_json(test.expected)
        try:
            value = read_json(result.files[_RESULT].decode())
            return same_value(value, expected, self.tests.rule) or (
                self.tests.wrapped and same_value(value, expected[0], self.tests.rule)
            )
        except (KeyError, ValueError, RecursionError):  # the program wrote something else into the file
            return False

    def _may_fail(self, test: ProgramTest) -> bool:
        """Return whether the output counts if the exit status is not 0. No output never does."""
        called = self._is_called or self.tests.statements is not None
        return not called and self.tests.rule.exit == "any" and bool(test.expected.strip())

    def feedback(self, result: RunResult, test: ProgramTest) -> str:
        """Return the input, the expected output, and what the program did instead."""
        lines = [f"Input:\n{_short(test.stdin)}", f"Expected output:\n{_short(test.expected)}"]
        if _is_late(result):
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


def _names_of(test: str) -> dict[str, Any]:
    """Return the names that a test uses, those of modules among them, and imports of known names."""
    nodes = list(ast.walk(ast.parse(test)))
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    owners = (node.value for node in nodes if isinstance(node, ast.Attribute))
    modules = {owner.id for owner in owners if isinstance(owner, ast.Name)} & sys.stdlib_module_names
    known = supplied_names("livecodebench", " ".join(used - modules))
    return {
        "used": sorted(used),
        "modules": sorted(modules),
        "imports": "\n".join([known, *(guarded(f"import {name}") for name in sorted(modules))]),
    }


def _booted(modules: tuple[str, ...], call: str) -> str:
    """Return a program that loads modules of `guest` and then makes a call to the last one."""
    return _BOOT.format(modules=[(name, _compiled(name)) for name in modules], call=call)


@cache
def _compiled(name: str) -> bytes:
    """Return a module of `guest`, compiled here, because the sandbox has the same interpreter."""
    text = (_GUEST / f"{name}.py").read_text(encoding="utf-8")
    return marshal.dumps(compile(text, f"{name}.py", "exec", dont_inherit=True))


def _is_late(result: RunResult) -> bool:
    return result.ending == "timeout" or result.exit_code == _OUT_OF_TIME


def _failure(result: RunResult) -> str:
    """Return how a program failed, without its output, its message, or a name that it chose."""
    if _is_late(result):
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
