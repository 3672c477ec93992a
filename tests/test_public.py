"""The public interface: few names, all of them documented, and no page that needs anything else."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
from typing import Any

import pytest

from gem_core.errors import ConfigError, MissingDependency, UnsupportedTrainer
from tests.docs.blocks import ROOT
from tests.docs.test_env_tables import load

MOST = 300
PRIVATE = re.compile(
    r"\b(?:from|import) +(gem_\w+(?:\.\w+)*\._[a-z]\w*)|\bfrom +(gem_\w[\w.]*) +import +.*\b(_[a-z]\w*)"
)

tool: Any = load("public_names")
NAMES: dict[str, set[str]] = tool.public_names()
SOURCES = [
    ast.parse(path.read_text("utf-8"))
    for pattern in ("gem_*/**/*.py", "integrations/*/gem_*/**/*.py")
    for path in ROOT.glob(pattern)
]


def test_the_public_names_are_few() -> None:
    assert tool.count() <= MOST, (
        f"{tool.count()} public names, not {MOST}: begin the name of a new module with an underscore, add to "
        "__all__ of a package only what users import, and take out what they do not need"
    )


def test_a_name_has_one_module() -> None:
    """A name that two modules list means two things; GEM's interface and a trainer's config repeat some."""
    homes: dict[str, list[str]] = {}
    for module, names in NAMES.items():
        if module.startswith(("gem_bridges.compat", "gem_verl")):
            continue
        for name in names:
            homes.setdefault(name, []).append(module)
    for name, modules in homes.items():
        objects = [value for module in modules if (value := found(module, name)) is not None]
        same = [one for one in objects if isinstance(one, type) or inspect.isfunction(one)]
        assert len(same) == len({id(one) for one in same}), f"{name} can be imported from {modules}"


def found(module: str, name: str) -> Any:
    """Return what a public name means, or None if it needs a package that is not installed."""
    try:
        return getattr(importlib.import_module(module), name)
    except (ConfigError, MissingDependency, UnsupportedTrainer):  # RL2 loads its file in a run
        return None
    except ImportError as error:
        if (error.name or "").startswith("gem_"):
            raise
        return None


@pytest.mark.parametrize("module", NAMES)
def test_every_name_exists_and_has_a_docstring(module: str) -> None:
    for name in NAMES[module]:
        value = found(module, name)
        if isinstance(value, type) or inspect.isroutine(value):
            assert value.__doc__, f"{module}.{name} has no docstring"


def test_the_list_of_public_names_is_current() -> None:
    page = ROOT / "docs" / "reference" / "stability.md"
    text = page.read_text("utf-8")
    assert tool.fill(text) == text, f"run: python tools/public_names.py {page.relative_to(ROOT)}"


def pages() -> list[str]:
    found = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.ipynb"), *ROOT.glob("*.md")]
    found += [
        *(ROOT / "integrations").glob("*/README.md"),
        *(ROOT / "integrations" / "examples").glob("*.py"),
    ]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


@pytest.mark.parametrize("page", pages())
def test_no_page_imports_an_internal_module(page: str) -> None:
    match = PRIVATE.search((ROOT / page).read_text("utf-8"))
    assert match is None, f"{page}: {match and match[0]!r} is internal; import from a module in stability.md"


@pytest.mark.parametrize(
    "line",
    ["from gem_core._x import Env", "import gem_lab._cli.check", "from gem_core import Env, _core"],
)
def test_an_internal_import_is_noticed(line: str) -> None:
    assert PRIVATE.search(line)


@functools.cache
def internal_functions() -> set[str]:
    """Return the names of functions of this project that nobody can import, and that no class has, too."""
    known = {name for names in NAMES.values() for name in names} | {"function"}  # a placeholder
    for kind in (node for tree in SOURCES for node in tree.body if isinstance(node, ast.ClassDef)):
        known |= {node.name for node in kind.body if isinstance(node, ast.FunctionDef)}
    return {node.name for tree in SOURCES for node in tree.body if isinstance(node, ast.FunctionDef)} - known


def internal_calls(text: str) -> set[str]:
    """Return the internal functions that a text writes as calls."""
    return set(re.findall(r"`(\w+)\([^`]*\)`", text)) & internal_functions()


@pytest.mark.parametrize("page", pages())
def test_what_a_page_calls_can_be_imported(page: str) -> None:
    assert not internal_calls((ROOT / page).read_text("utf-8"))


def test_a_call_of_an_internal_function_is_noticed() -> None:
    assert len(SOURCES) > 400
    text = "`run_episode(env)`, `set_env_threads(64)`, `found_nowhere()`, `tabulate_components(rewards, [])`"
    assert internal_calls(text) == {"tabulate_components"}


def test_a_module_and_a_name_with_an_underscore_are_not_counted(tmp_path: Any, monkeypatch: Any) -> None:
    package = tmp_path / "gem_new"
    (package / "_hidden").mkdir(parents=True)
    (package / "_hidden" / "__init__.py").write_text("A = 1")
    (package / "__init__.py").write_text('__all__ = ["lazy"]\n\ndef seen(): ...\ndef _unseen(): ...')
    (package / "_module.py").write_text("B = 2")
    (package / "module.py").write_text("C: int = 3\n_D = 4")
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    assert tool.public_names() == {"gem_new": {"lazy", "seen"}, "gem_new.module": {"C"}}
