"""One name per concept: a public name is defined in one module, so that a search for it finds one thing."""

import ast
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[1]
PACKAGES = ["gem_core", "gem_chat", "gem_envs", "gem_bridges", "gem_agents", "gem_lab"]

SAME_THING = {
    # GEM's own names, for programs that were written for GEM
    "CodeEnv", "Env", "MathEnv", "QaEnv", "SearchTool", "make", "make_vec",
    # each command of the command line, each package, each program
    "add_arguments", "main", "register", "run",
    # the same arrays, without an import of the other package
    "FloatArray", "IntArray",
}  # fmt: skip
"""Names that mean the same wherever they are defined."""

IN_SEVERAL_MODULES = {
    "arithmetic", "as_text", "best_guess", "build_env", "change", "common_length", "compare", "direction",
    "distances", "entries_of", "evaluate", "exchange", "expect_same", "find", "fingerprint", "follow",
    "head", "integers", "json_value", "list_tools", "listed", "load_tokenizer", "measure", "named", "names",
    "pack", "plain", "play", "protect", "read", "read_json", "read_task", "runs", "same", "send", "shop",
    "show", "solve", "table", "text_of", "tool", "turned", "unpack", "value", "value_of", "warm_up",
    "within", "words", "write", "write_page", "write_report",
}  # fmt: skip
"""Functions of several modules, each used next to where it is defined. Do not add one: choose a name that
says what it returns."""


def repeated_names(root=ROOT):
    """Return the modules of each public class, function, and type that several modules define."""
    modules = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            for name in defined_names(ast.parse(path.read_text())):
                modules.setdefault(name, []).append(str(path.relative_to(root)))
    return {name: found for name, found in modules.items() if len(found) > 1}


def defined_names(tree):
    """Return the public names that a module defines, without its constants."""
    names = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias":
            names.add(ast.unparse(node.target))
    return {name for name in names if not name.startswith("_")}


def test_no_new_name_means_two_things():
    repeated = repeated_names()
    new = {name: found for name, found in repeated.items() if name not in SAME_THING | IN_SEVERAL_MODULES}
    lines = [f"{name}: {', '.join(found)}" for name, found in sorted(new.items())]
    assert not new, "rename all but one of each, after what it is:\n" + "\n".join(lines)


def test_the_lists_above_hold_no_name_that_is_now_defined_once():
    assert (SAME_THING | IN_SEVERAL_MODULES) - repeated_names().keys() == set()


def test_a_second_class_of_a_name_is_found(tmp_path):
    for package in PACKAGES:
        (tmp_path / package).mkdir()
    (tmp_path / "gem_core" / "a.py").write_text("class Worker: ...\nSplit: TypeAlias = str\ndef _f(): ...\n")
    (tmp_path / "gem_lab" / "b.py").write_text("class Worker: ...\nSplit: TypeAlias = int\ndef _f(): ...\n")
    found = ["gem_core/a.py", "gem_lab/b.py"]
    assert repeated_names(tmp_path) == {"Worker": found, "Split": found}
