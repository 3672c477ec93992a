"""Change the product in one place at a time, and list the changes that no test notices.

    nox -s mutants                                  # 40 changes in each package
    nox -s mutants -- advantages rollout --sample 100 --seed 1

The changes are made in a copy of a commit, by default the last one. A change runs those tests of its package
that ran the changed lines, the quick ones first, so a change that only another package's tests would notice
counts as unnoticed. Lines that run on import, or that no test ran in its own process, run all tests of the
package. Places are drawn by seed, at most one per line. cosmic-ray makes most of the changes; the operators
below drop what the code passes on or does.

The tests of a plugin run in the environment of its trainer's session; the nox session puts pytest-cov, which
they need for that, on the import path.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import io
import itertools
import json
import os
import random
import shlex
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import parso
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Example, Operator
from cosmic_ray.plugins import get_operator, operator_names
from cosmic_ray.testing import run_tests
from cosmic_ray.work_item import TestOutcome
from coverage import CoverageData

ROOT = Path(__file__).parents[1]
TARGETS = {
    "advantages": ("gem_core/advantages", "tests/advantages"),
    "trainers": ("gem_core/trainers", "tests/trainers/kit"),
    "rollout": ("gem_core/rollout", "tests/rollout"),
    "chat": ("gem_chat", "tests/rollout"),
    "games": ("gem_envs/_games", "tests/envs/games"),
    "graders": ("gem_envs/graders", "tests/graders"),
    "data": ("gem_envs/data", "tests/data tests/envs/datasets"),
    "eval": ("gem_lab/eval", "tests/eval"),
    "sandbox": ("gem_envs/sandbox", "tests/sandbox"),
    "tools": ("gem_envs/tools", "tests/tools tests/wrappers/test_tools.py"),
    "agents": ("gem_agents", "tests/agents"),
    "verl": ("integrations/verl/gem_verl", "tests/trainers/verl"),
    "openrlhf": ("integrations/openrlhf/gem_openrlhf", "tests/trainers/openrlhf"),
    "trl": ("integrations/trl/gem_trl", "tests/trainers/trl"),
    "oat": ("integrations/oat/gem_oat", "tests/trainers/oat"),
    "rl2": ("integrations/rl2/gem_rl2", "tests/trainers/rl2"),
    "roll": ("integrations/roll/gem_roll", "tests/trainers/roll"),
}
"""Packages by name, with the tests that mirror them. A plugin's tests run in its trainer's environment."""
TIME_LIMIT = 300
"""Seconds for the tests of one change; a change that makes them hang is noticed."""
LONGEST = 60
"""Seconds after which a test is left out: the real runs of the trainers, which ``make test`` has."""
VOID = ("BitOr", "_Is", "ExceptionReplacer")
"""Parts of the names of cosmic-ray's operators whose changes mostly mean nothing: annotations are not
evaluated, equal names are identical, and nothing raises the exception of the test tool."""


class DropArgument(Operator):
    """Remove one keyword argument of a call."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        """Yield the positions of the keyword arguments directly in this node."""
        for child in self._arguments(node):
            yield child.start_pos, child.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """Remove the argument and the comma behind it."""
        place = node.children.index(self._arguments(node)[index])
        comma = node.children[place + 1 : place + 2]
        del node.children[
            place : place + 1 + (bool(comma) and comma[0].type == "operator" and comma[0] == ",")
        ]
        return node

    @staticmethod
    def _arguments(node: Any) -> list[Any]:
        if node.type not in ("arglist", "trailer"):
            return []
        return [c for c in node.children if c.type == "argument" and c.children[1] == "="]

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Return code before and after a change."""
        return (
            Example("f(a, b=1, c=2)", "f(a, c=2)"),
            Example("f(a=1)", "f()"),
            Example("f(a, b=g())", "f(a,)"),
        )


class DropStatement(Operator):
    """Replace a call, a raise, or an assignment to an attribute or an item by ``pass``."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        """Yield the position of the statement."""
        if node.type == "simple_stmt" and self._can_go(node.children[0]):
            yield node.children[0].start_pos, node.children[0].end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """Replace the statement."""
        nothing = parso.parse("pass").children[0]
        nothing.prefix = node.children[0].get_first_leaf().prefix
        node.children[0] = nothing
        return node

    @staticmethod
    def _can_go(statement: Any) -> bool:
        if statement.type == "expr_stmt":
            target, kind = statement.children[0], statement.children[1].type
            return target.type in ("atom_expr", "power") or (
                kind == "operator" and statement.children[1] != "="
            )
        return statement.type in ("atom_expr", "power", "raise_stmt")

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Return code before and after a change."""
        return (
            Example("if a:\n    f(x)\n", "if a:\n    pass\n"),
            Example("a += 1\n", "pass\n"),
            Example("a.b = 1\n", "pass\n"),
            Example("raise A(b)\n", "pass\n"),
            Example("a = f(b)\n", None),  # later lines would fail with a NameError
            Example('"""A docstring."""\n', None),
        )


OWN: dict[str, Any] = {"drop-argument": DropArgument, "drop-statement": DropStatement}


class Change(NamedTuple):
    """One possible change of a file."""

    path: str
    line: int
    operator: str
    occurrence: int


def changes_in(path: str, source: str) -> list[Change]:
    """Return every change that an operator could make in a file."""
    names = [*OWN, *(name for name in operator_names() if not any(part in name for part in VOID))]
    tree, found = get_ast(source), []
    lines = source.splitlines()
    for name in names:
        operator = make(name)
        if operator is None:
            continue
        places = (place for node in ast_nodes(tree) for place in operator.mutation_positions(node))
        found += [
            Change(path, start[0], name, index)
            for index, (start, _) in enumerate(places)
            if not _is_marker(lines[start[0] - 1])
        ]
    return found


def _is_marker(line: str) -> bool:
    """Return whether a line holds no value: the ``*`` before keyword arguments, or a check of types."""
    return line.strip() == "*," or " *, " in line or line.startswith("if TYPE_CHECKING")


def make(name: str) -> Operator | None:
    """Return the operator with this name; None if it needs arguments."""
    kind: Any = OWN.get(name) or get_operator(name)
    return None if kind.arguments() else kind()


def draw(package: Path, base: Path, count: int, seed: int) -> list[Change]:
    """Draw changes of a package, at most one per line; the same for the same code and seed."""
    generator = random.Random(seed)
    by_line: dict[tuple[str, int], list[Change]] = {}
    for path in sorted(package.rglob("*.py")):
        name = str(path.relative_to(base))
        for change in changes_in(name, path.read_text(encoding="utf-8")):
            by_line.setdefault((name, change.line), []).append(change)
    lines = generator.sample(sorted(by_line), min(count, len(by_line)))
    return [generator.choice(by_line[line]) for line in lines]


def interpreter(target: str, default: str) -> str:
    """Return the Python of the session that has the trainer of a plugin, or else the default."""
    session_python = ROOT / ".nox" / target / "bin" / "python"
    return str(session_python) if session_python.exists() else default


class Selection:
    """The tests of a package by the lines that they run.

    Args:
        data: File with the lines of each test, as pytest-cov writes it.
        times: JUnit file with the seconds of each test.
    """

    def __init__(self, data: Path, times: Path) -> None:
        self.seconds: dict[str, float] = {}
        for case in ET.parse(times).iter("testcase"):
            name = _test_name(case.get("classname", ""), case.get("name", ""))
            self.seconds[name] = self.seconds.get(name, 0.0) + float(case.get("time", 0))
        self._data = CoverageData(str(data))
        self._data.read()

    def tests(self, path: Path, line: int) -> list[str]:
        """Return the tests that run the statement at a line, the quickest first; else all tests."""
        by_line = self._data.contexts_by_lineno(str(path))
        statement = _statement(path.read_text(encoding="utf-8"), line)
        contexts = {context for at in statement for context in by_line.get(at, ())}
        names = {context.partition("|")[0] for context in contexts}
        chosen = self.seconds if not names or "" in names else names & self.seconds.keys()
        quick = [name for name in chosen if self.seconds[name] <= LONGEST]
        return sorted(quick, key=lambda name: (self.seconds[name], name))


def _test_name(module: str, name: str) -> str:
    """Return the name of a test for pytest's command line; its file may differ from that of its code."""
    parts = module.split(".")
    files = list(itertools.takewhile(lambda part: not part.startswith("Test"), parts))
    return "::".join(["/".join(files) + ".py", *parts[len(files) :], name])


def _statement(source: str, line: int) -> range:
    """Return the lines of the smallest statement around a line; of a compound one, its head."""
    found = range(line, line + 1)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            if line <= last:
                found = range(node.lineno, last + 1)
    return found


def noticed(base: Path, change: Change, selection: Selection, command: str) -> tuple[bool, str]:
    """Make a change, run its tests, and undo it; return whether a test failed, and the difference."""
    path = base / change.path
    source = path.read_text(encoding="utf-8")
    operator = make(change.operator)
    assert operator is not None
    changed = mutate_code(source, operator, change.occurrence)
    difference = difflib.unified_diff(
        source.splitlines(), changed.splitlines(), change.path, lineterm="", n=0
    )
    listed = base / "selected.txt"
    tests = selection.tests(path, change.line)
    listed.write_text("".join(f"{name}\n" for name in tests), encoding="utf-8")
    path.write_text(changed, encoding="utf-8")
    try:
        outcome, output = run_tests(f"{command} @{listed}", TIME_LIMIT)
    finally:
        path.write_text(source, encoding="utf-8")
    if outcome is TestOutcome.INCOMPETENT:
        raise RuntimeError(output)
    return outcome is TestOutcome.KILLED, "\n".join(list(difference)[2:])


def check(base: Path, target: str, count: int, seed: int, python: str) -> dict[str, Any]:
    """Make the changes of one package; return their number and those that no test noticed."""
    package, tests = TARGETS[target]
    command = (
        f"{shlex.quote(interpreter(target, python))} -m pytest -q -p no:cacheprovider -m 'not full' "
        "--timeout 300 -o junit_family=xunit1"
    )
    data, times = base / "lines.data", base / "times.xml"
    os.environ["COVERAGE_FILE"] = str(data)
    covered = f"--cov={package} --cov-context=test --cov-report= --junitxml={times}"
    outcome, output = run_tests(f"{command} {covered} {tests}", 12 * TIME_LIMIT)
    if outcome is not TestOutcome.SURVIVED:
        raise SystemExit(f"{target}: the tests fail without any change:\n{output[-2000:]}")
    selection, listed = Selection(data, times), base / "selected.txt"
    listed.write_text("".join(f"{name}\n" for name in selection.seconds), encoding="utf-8")
    outcome, output = run_tests(f"{command} --collect-only @{listed}", TIME_LIMIT)
    if outcome is not TestOutcome.SURVIVED:  # a test that is not found would count as one that failed
        raise SystemExit(f"{target}: not all of the tests can be run by name:\n{output[-2000:]}")
    command = f"{command} -x"
    survivors = []
    changes = draw(base / package, base, count, seed)
    for index, change in enumerate(changes, start=1):
        killed, difference = noticed(base, change, selection, command)
        sys.stderr.write(f"{target} {index}/{len(changes)} {'noticed' if killed else 'SURVIVED'} {change}\n")
        if not killed:
            survivors.append({**change._asdict(), "difference": difference})
    return {"changes": len(changes), "survivors": survivors}


def main() -> None:
    """Make the changes, and print a table and the changes that no test noticed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "packages", nargs="*", choices=[*TARGETS, []], help="packages; by default all but the plugins"
    )
    parser.add_argument("--sample", type=int, default=40, help="changes per package")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw")
    parser.add_argument(
        "--python", default=sys.executable, help="interpreter for the tests of all but the plugins"
    )
    parser.add_argument("--out", type=Path, help="JSON file to which the results are also written")
    parser.add_argument("--commit", default="HEAD", help="commit to change")
    args = parser.parse_args()
    for name, operator in OWN.items():
        for example in operator.examples():
            made = mutate_code(example.pre_mutation_code, operator(), 0)
            if made != example.post_mutation_code:
                raise SystemExit(f"{name}: {example.pre_mutation_code!r} became {made!r}")
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        archive = subprocess.run(
            ["git", "archive", args.commit], cwd=ROOT, check=True, capture_output=True
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(base, filter="data")
        inherited = filter(None, [os.environ.get("PYTHONPATH")])
        paths = [base, *sorted((base / "integrations").iterdir()), *inherited]
        os.environ |= {"PYTHONPATH": os.pathsep.join(map(str, paths)), "OMP_NUM_THREADS": "1"}
        os.chdir(base)
        own = [name for name, (package, _) in TARGETS.items() if not package.startswith("integrations")]
        for target in args.packages or own:
            results[target] = check(base, target, args.sample, args.seed, args.python)
            if args.out:
                (ROOT / args.out).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        os.chdir(ROOT)
    write = sys.stdout.write
    write("| package | changes | survived |\n|---|---|---|\n")
    for target, result in results.items():
        write(f"| {target} | {result['changes']} | {len(result['survivors'])} |\n")
    for survivor in (survivor for result in results.values() for survivor in result["survivors"]):
        write("\n{path}:{line} {operator}\n{difference}\n".format(**survivor))


if __name__ == "__main__":
    main()
