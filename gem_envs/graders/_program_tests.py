"""Tests of programs, and how they are read from the rows of the well-known datasets.

| dataset | column of the task | column of the tests | other columns that are read |
|---|---|---|---|
| GEM's, your own | ``problem`` | ``tests`` | ``metadata`` |
| APPS, TACO | ``question`` | ``input_output`` | |
| LiveCodeBench | ``question_content`` | ``public_test_cases`` | ``private_test_cases``, ``metadata`` |
| code_contests | ``description`` | ``public_tests`` | ``private_tests``, ``generated_tests``, limits |
| MBPP | ``text`` or ``prompt`` | ``test_list`` | ``test_setup_code``, ``test_imports`` |
| HumanEval | ``prompt`` | ``test`` | ``entry_point`` |

Limits are ``time_limit`` and ``memory_limit_bytes``; APPS, TACO, and LiveCodeBench have a ``starter_code``.
TACO is told from APPS by its column ``skill_types``.

Tests are ``{"inputs": [...], "outputs": [...]}`` (or ``input`` and ``output``), a list of ``{"input": ...,
"output": ...}``, or a list of statements, each also as JSON text. They are of programs that read and write,
unless a function is named: ``fn_name`` next to the tests, or ``func_name`` in ``metadata`` where the tests
say ``"testtype": "functional"``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from gem_core._util.messages import error_line
from gem_core.errors import DataError
from gem_envs.graders._outputs import RULES, OutputRule, RuleName, read_json, write_json
from gem_envs.graders._packed import unpacked_text

KEYS: tuple[tuple[str, str, RuleName], ...] = (
    ("problem", "tests", "lines"),
    ("question", "input_output", "apps"),
    ("question_content", "public_test_cases", "livecodebench"),
    ("description", "public_tests", "code_contests"),
    ("text", "test_list", "lines"),
    ("prompt", "test_list", "lines"),
    ("prompt", "test", "lines"),
)
"""Column of the task, column of the tests, and rule of comparison of each dataset."""
_MORE = {
    "public_test_cases": ("private_test_cases",),
    "public_tests": ("private_tests", "generated_tests"),
}
"""Columns with further tests, by the column of the tests."""
_FORMS = (
    "equally many inputs and outputs, a list of objects with 'input' and 'output', or a list of statements"
)


_CHECK = "check(candidate)"


class ProgramTest(NamedTuple):
    """A test of a program."""

    stdin: str
    """Standard input; the arguments as a JSON list; or a statement that fails for a wrong program."""
    expected: str
    """Standard output; the result as JSON; or nothing."""


class Statements(NamedTuple):
    """What statements as tests need."""

    prelude: str = ""
    """Code before the program: imports, or the beginning that the program completes."""
    setup: str = ""
    """Code before each statement."""
    entry_point: str | None = None
    """Name of the function of the program that the statements call ``candidate``; None: they use all of the
    program's names."""


class ProgramTests(NamedTuple):
    """All tests of a task."""

    tests: tuple[ProgramTest, ...]
    function: str | None = None
    """Name of the function to call; None for programs that read and write, and for statements."""
    rule: OutputRule = RULES["lines"]
    wrapped: bool = False
    """Whether each result may be expected inside a list of one value, as in some of the datasets."""
    statements: Statements | None = None
    """None unless the tests are statements."""
    cpu_seconds: float | None = None
    """Time limit of the item; None if it has none."""
    memory_bytes: int | None = None
    """Memory limit of the item; None if it has none."""


def keys_of(columns: Sequence[str]) -> tuple[str, str]:
    """Return the columns of task and tests of a known dataset; those of GEM's if the columns are unknown."""
    known = ((question, tests) for question, tests, _ in KEYS if question in columns and tests in columns)
    return next(known, KEYS[0][:2])


def rule_of(column: str, row: Mapping[str, Any]) -> OutputRule:
    """Return the rule of the dataset with this row, whose tests are in this column."""
    owners = {more: first for first, others in _MORE.items() for more in others}
    column = owners.get(column, column)
    if column == "input_output" and "skill_types" in row:
        return RULES["taco"]
    return RULES[next((name for _, tests, name in KEYS if tests == column), "lines")]


def row_tests(row: Mapping[str, Any], column: str, rule: OutputRule | None = None) -> ProgramTests:
    """Read the tests of a row.

    Args:
        row: Row of a dataset.
        column: Column of the tests.
        rule: How outputs are compared. None means as the dataset with this column does.

    Raises:
        DataError: The format is unknown, or there are no tests.
    """
    if "entry_point" in row and column == "test":
        return _checked(row)
    more = [row[name] for name in _MORE.get(column, ()) if row.get(name)]
    tests = read_tests(row[column], more=more, function=_function_of(row.get("metadata")))
    if tests.statements is not None:
        imports = row.get("test_imports")
        prelude = "\n".join(map(str, imports if isinstance(imports, list) else []))
        setup = str(row.get("test_setup_code") or "")
        for what, text in (("test_imports", prelude), ("test_setup_code", setup)):
            _check_python(what, text)
        tests = tests._replace(statements=Statements(prelude, setup))
    rule = rule or rule_of(column, row)
    return tests._replace(
        rule=rule,
        wrapped=tests.wrapped and rule.name != "livecodebench",
        cpu_seconds=_seconds(row.get("time_limit")),
        memory_bytes=_positive(row.get("memory_limit_bytes")),
    )


def _checked(row: Mapping[str, Any]) -> ProgramTests:
    """Return the tests of a row as in HumanEval, whose test defines a function ``check``."""
    name, test, prelude = row["entry_point"], row["test"], row.get("prompt")
    for column, text in (("entry_point", name), ("test", test)):
        if not isinstance(text, str) or not text.strip():
            raise DataError(f"column {column!r} must be text, not {text!r}")
    if "check" not in _check_python("test", test):
        raise DataError("column 'test' must define a function check(candidate)")
    try:
        _check_python("prompt", str(prelude))
    except DataError:  # a task in words
        prelude = ""
    statements = Statements(str(prelude), test, name)
    return ProgramTests((ProgramTest(_CHECK, ""),), statements=statements)


def _check_python(column: str, text: str) -> Sequence[str]:
    """Return the names of the functions that a text defines; an empty name for each other statement.

    Raises:
        DataError: It is not Python.
    """
    try:
        return _statements(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise DataError(f"column {column!r} must be Python ({error_line(error)})") from None


@lru_cache(maxsize=32)
def _statements(text: str) -> tuple[str, ...]:
    return tuple(node.name if isinstance(node, ast.FunctionDef) else "" for node in ast.parse(text).body)


def read_tests(data: Any, *, more: Sequence[Any] = (), function: str | None = None) -> ProgramTests:
    """Read tests.

    Args:
        data: Tests in one of the formats of this module.
        more: Further tests of the same item.
        function: Function that the tests call if they are of a function and do not name it.

    Raises:
        DataError: The format is unknown, or there are no tests.
    """
    try:
        cases = [case for part in (data, *more) for case in _cases(_value(part))]
        if cases and all(isinstance(case, str) for case in cases):
            for case in cases:
                if not _check_python("test_list", case):
                    raise DataError("a statement of the test is empty")
            return ProgramTests(tuple(ProgramTest(case, "") for case in cases), statements=Statements())
        name = next((case["fn_name"] for case in cases if case["fn_name"]), None)
        if any(case["functional"] for case in cases) and not name:
            name = function
            if not name:
                raise DataError(
                    "the tests are functional, but nothing names the function: expected func_name in the "
                    "column metadata, or fn_name in the tests"
                )
        form = _call if name else _stream
        tests = tuple(ProgramTest(*form(case["input"], case["output"])) for case in cases)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"expected {_FORMS} ({error_line(error)})") from error
    if not tests:
        raise DataError("the list of tests is empty")
    wrapped = bool(name) and all(_holds_one(read_json(test.expected)) for test in tests)
    return ProgramTests(tests, name, wrapped=wrapped)


def _holds_one(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 1


def _value(data: Any) -> Any:
    """Return tests that are stored as text: as JSON, or packed as in LiveCodeBench."""
    if not isinstance(data, str | bytes):
        return data
    text = data.strip()
    if text[:1] in ("", "[", "{", b"", b"[", b"{"):
        return read_json(text)
    return read_json(unpacked_text(text))


def _cases(data: Any) -> Iterator[Any]:
    """Return the tests as objects, or as statements."""
    if isinstance(data, Mapping):
        many = "inputs" if "inputs" in data else "input"
        name = data.get("fn_name")
        for inputs, output in zip(data[many], data[many.replace("in", "out")], strict=True):
            yield {"input": inputs, "output": output, "fn_name": name, "functional": False}
        return
    for test in data:
        if isinstance(test, str):
            yield test
            continue
        kind = test.get("testtype")
        if kind not in (None, "stdin", "functional"):
            raise ValueError(f"testtype={kind!r}: expected 'stdin' or 'functional'")
        yield {
            "input": test["input"],
            "output": test["output"],
            "fn_name": test.get("fn_name"),
            "functional": kind == "functional",
        }


def _function_of(metadata: Any) -> str | None:
    """Return the name of the function in a column of metadata."""
    if isinstance(metadata, str) and metadata.strip():
        try:
            metadata = read_json(metadata)
        except ValueError:
            return None
    name = metadata.get("func_name") or metadata.get("fn_name") if isinstance(metadata, Mapping) else None
    return name if isinstance(name, str) and name else None


def _seconds(limit: Any) -> float | None:
    """Return a time limit in seconds: a number, or an object with seconds and nanos."""
    if isinstance(limit, Mapping):
        limit = (limit.get("seconds") or 0) + (limit.get("nanos") or 0) / 1e9
    return float(limit) if isinstance(limit, int | float) and limit > 0 else None


def _positive(limit: Any) -> int | None:
    return int(limit) if isinstance(limit, int | float) and limit > 0 else None


def _stream(inputs: Any, expected: Any) -> tuple[str, str]:
    return _text(inputs), _text(expected)


def _text(value: Any) -> str:
    """Return a text, or the lines of a list; a line can be a list of words."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        lines = (line if isinstance(line, list | tuple) else [line] for line in value)
        return "\n".join(" ".join(map(str, line)) for line in lines)
    return str(value)


def _call(inputs: Any, expected: Any) -> tuple[str, str]:
    """Return arguments and result as JSON. If the arguments are text, one a line, both are JSON already."""
    if isinstance(inputs, str):
        inputs = [read_json(line) for line in inputs.splitlines() if line.strip()]
        if isinstance(expected, str):
            expected = read_json(expected)
    arguments = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    return write_json(arguments), write_json(expected)
