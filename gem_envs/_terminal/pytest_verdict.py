"""The verdict of pytest on the machine of a player: which tests have to pass, and whether they did.

The tests that have to pass are read from the text of the task's own test files, before an episode. Each of
them has to be reported as passed, in lines with a sign that is drawn for this grading and that neither files
nor programs of the player can know. Code of the player that a test imports runs in the process of the test:
it could find the sign, as it could replace the test.
"""

from __future__ import annotations

import ast
import json
import re
import secrets
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gem_core.errors import DataError
from gem_envs._terminal.source import Grade
from gem_envs.sandbox._shell import Files, Shell

_PROGRAM = Path(__file__).with_name("run_pytest.py")
_SETTINGS = ("pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
_EXEMPT = {"skip", "xfail", "fixture", "expectedFailure"}
_OUTPUT = 10**6
_Function = (ast.FunctionDef, ast.AsyncFunctionDef)


# -- before an episode ----------------------------------------------------------------------------


def pytest_files(files: Files) -> list[str]:
    """Return the names of the files that pytest runs."""
    return [name for name in files if re.fullmatch(r"test_\w+\.py", name)]


def required_tests(files: Files) -> dict[str, int]:
    """Return the tests that have to pass, and the minimum number of cases of each.

    The key is ``FILE::FUNCTION`` or ``FILE::CLASS::FUNCTION``. A test that its author has marked with
    ``skip`` or ``xfail`` need not pass. A test whose parameters are not written out as a list has at least
    one case.

    Raises:
        DataError: A file is not Python.
    """
    required: dict[str, int] = {}
    for name in pytest_files(files):
        try:
            tree = ast.parse(files[name].data)
        except (SyntaxError, ValueError, RecursionError) as error:
            raise DataError(f"its test file {name} cannot be read: {error}") from None
        marks = _marks(tree.body)
        required.update((f"{name}::{test}", cases) for test, cases in _tests(tree.body, marks))
    return required


def _tests(body: Sequence[ast.stmt], marks: Sequence[ast.expr]) -> Iterator[tuple[str, int]]:
    for node in _statements(body):
        if isinstance(node, _Function) and node.name.startswith("test"):
            if cases := _cases([*marks, *node.decorator_list]):
                yield node.name, cases
        elif isinstance(node, ast.ClassDef) and _is_collected(node):
            inner = [*marks, *node.decorator_list, *_marks(node.body)]
            for name, cases in _tests(node.body, inner):
                yield f"{node.name}::{name}", cases


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Iterate over the statements, also those in ``if``, ``try``, ``with``, and loops."""
    for node in body:
        yield node
        if not isinstance(node, (*_Function, ast.ClassDef)):
            for part in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(node, part, []))
            for handler in getattr(node, "handlers", []):
                yield from _statements(handler.body)


def _is_collected(node: ast.ClassDef) -> bool:
    if any(_last_name(base).endswith("TestCase") for base in node.bases):
        return True
    assigned = {
        target.id: one.value
        for one in node.body
        if isinstance(one, ast.Assign)
        for target in one.targets
        if isinstance(target, ast.Name)
    }
    off = assigned.get("__test__")
    named = {one.name for one in node.body if isinstance(one, _Function)}
    return (
        node.name.startswith("Test")
        and "__init__" not in named
        and not (isinstance(off, ast.Constant) and not off.value)
    )


def _marks(body: Sequence[ast.stmt]) -> list[ast.expr]:
    """Return the marks that ``pytestmark`` gives to all tests of a file or class."""
    values = [
        node.value
        for node in body
        if isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets)
    ]
    return [
        mark
        for value in values
        for mark in (value.elts if isinstance(value, ast.List | ast.Tuple) else [value])
    ]


def _cases(marks: Sequence[ast.expr]) -> int:
    """Return the minimum number of cases of a test with these marks; 0 if it need not pass."""
    cases = 1
    for mark in marks:
        name = _last_name(mark)
        if name in _EXEMPT:
            return 0
        if name == "parametrize" and isinstance(mark, ast.Call):
            given = [*mark.args[1:2], *(one.value for one in mark.keywords if one.arg == "argvalues")]
            if given and isinstance(given[0], ast.List | ast.Tuple):
                plain = [one for one in given[0].elts if not _is_marked(one)]
                cases *= len(plain) if not any(isinstance(one, ast.Starred) for one in plain) else 1
    return cases


def _is_marked(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and any(one.arg == "marks" for one in value.keywords)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        return _last_name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


# -- after an episode -----------------------------------------------------------------------------


def run_pytest(shell: Shell, files: Files, required: Mapping[str, int], seconds: float, before: str) -> Grade:
    """Run the test files, which are in ``/tests``, and grade.

    Args:
        shell: Shell of the player, in which nothing runs.
        files: The files of ``/tests``.
        required: Result of `required_tests`.
        seconds: Wall-clock limit, in seconds.
        before: Commands for the shell, before pytest.
    """
    sign = secrets.token_hex(16)
    settings = next((f"/tests/{name}" for name in _SETTINGS if name in files), "/dev/null")
    words = [
        "python3",
        "-I",
        "-c",
        _PROGRAM.read_text(encoding="utf-8"),
        "/tests",
        settings,
        *pytest_files(files),
    ]
    command = f"{before}; cd /app; {shlex.join(words)} 3<<< {sign} 2>&1"
    result = shell.run(command, seconds=seconds, characters=_OUTPUT)
    return verdict(result.output if result.ending == "ok" else "", sign, required)


def verdict(output: str, sign: str, required: Mapping[str, int]) -> Grade:
    """Return the result of the tests from the signed lines of an output.

    Every test in `required` has to be reported as passed, in at least its number of cases, no report may be
    of a failure, and pytest has to end with status 0.
    """
    outcomes: dict[str, set[str]] = {}
    statuses = []
    for line in output.splitlines():
        if line.startswith(f"{sign} "):
            name, outcome = _words(line[len(sign) + 1 :])
            if name == "status":
                statuses.append(outcome)
            else:
                outcomes.setdefault(name, set()).add(outcome)
    failed = {name for name, seen in outcomes.items() if "failed" in seen}
    passed = [name.partition("[")[0] for name, seen in outcomes.items() if seen == {"passed"}]
    short = {name for name, cases in required.items() if passed.count(name) < cases}
    failed |= {name for name in short if not any(one.partition("[")[0] == name for one in failed)}
    names = sorted(failed)
    if not names and (statuses != ["0"] or not required):
        names = ["the tests did not run to their end"]
    return Grade(names, max(len(outcomes.keys() | required.keys()), len(names)))


def printed_verdict(output: str, required: Mapping[str, int]) -> list[str]:
    """Return the tests in `required` that no line ``PASSED`` of pytest's summary names often enough."""
    lines = re.findall(r"^PASSED (?:\S*/)?(test_\w+\.py::\S+)", output, re.MULTILINE)
    passed = [name.partition("[")[0] for name in lines]
    return sorted(name for name, cases in required.items() if passed.count(name) < cases)


def _words(text: str) -> tuple[str, str]:
    try:
        name, outcome = json.loads(text)
        return str(name), str(outcome)
    except (ValueError, RecursionError, TypeError):
        return "", "failed"
