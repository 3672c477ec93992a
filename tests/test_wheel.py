"""The wheel depends only on its own packages, and its core names no trainer."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CORE = sorted(ROOT.glob("gem_*/**/*.py"))
WHEEL = [*CORE, *sorted(path for path in (ROOT / "integrations").glob("*/gem_*/**/*.py"))]

CHECKOUT = re.compile(r"\bdocs/\w[\w/-]*\.\w|^tests[./]\w")
"""A page or a result of the checkout, or one of its test modules or files, in a string."""
TRAINERS = re.compile(
    r"verl|openrlhf|oat|rl2|trl|gem_(verl|openrlhf|oat|rl2|roll|trl)|OpenRLHF|Oat|RL2|ROLL|TRL"
)
"""A trainer's name as a word or the beginning of an identifier; "roll" is also a verb."""


def findings(path: Path) -> Iterator[str]:
    """Yield everything that a module needs from the checkout, one line per import or string."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            names = []
        where = f"{path}:{getattr(node, 'lineno', 0)}"
        for name in names:
            if name.partition(".")[0] in ("tests", "docs", "benchmarks", "tools"):
                yield f"{where}: imports {name}"
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            match = CHECKOUT.search(node.value)
            if match:
                yield f"{where}: names {match[0]}"


@pytest.mark.once
def test_no_module_of_the_wheel_needs_the_checkout() -> None:
    assert len(WHEEL) > 200
    assert [finding for path in WHEEL for finding in findings(path)] == []


@pytest.mark.parametrize(
    ("code", "finding"),
    [
        ("import tests.support", "imports tests.support"),
        ("from tests import support", "imports tests"),
        ("def f():\n    from benchmarks.run import main", "imports benchmarks.run"),
        ("RUNS = 'docs/results/learning/runs.jsonl'", "names docs/results/learning/runs.j"),
        ("command = ['-m', 'tests.trainers.learning']", "names tests.t"),
        ("path = f'tests/trainers/{name}/learn.py'", "names tests/t"),
        ("from gem_core.wrappers import tools", None),
        ("column, task_folder = 'tests', '/tests/test.sh'", None),
    ],
)
def test_each_kind_of_finding(tmp_path: Path, code: str, finding: str | None) -> None:
    (tmp_path / "module.py").write_text(code + "\n")
    found = [line.partition(": ")[2] for line in findings(tmp_path / "module.py")]
    assert found == ([finding] if finding else [])


def docstring_lines(source: str) -> set[int]:
    """Return the numbers of the lines of docstrings."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Expr)]
    return {
        line
        for node in nodes
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def test_the_core_names_no_trainer() -> None:
    named = []
    for path in CORE:
        source = path.read_text(encoding="utf-8")
        # The docstring of an estimator cites the function of a trainer that defines it.
        citations = docstring_lines(source) if path.parent.name == "advantages" else set()
        if path.name == "_formats.py" and path.parent.name == "data":  # a format has the name of its readers
            continue
        for number, line in enumerate(source.splitlines(), 1):
            words = re.findall(r"\w+", line) if number not in citations else []
            if any(TRAINERS.fullmatch(word) or TRAINERS.fullmatch(word.partition("_")[0]) for word in words):
                named.append(f"{path}:{number}: {line.strip()}")
    assert named == []
