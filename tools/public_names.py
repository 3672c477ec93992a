"""Write the list of public names in docs/reference/stability.md, from the source of the packages.

    python tools/public_names.py docs/reference/stability.md

The part between ``<!-- names -->`` and ``<!-- end -->`` is replaced.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from marked import rewrite_page, with_part

ROOT = Path(__file__).resolve().parents[1]
ENTRY_POINTS = set(re.findall(r'= "([\w.]+):(\w+)"', (ROOT / "pyproject.toml").read_text("utf-8")))
"""Modules and names that entry points load; nobody imports them."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Yield the name and the source of each module whose path has no leading underscore."""
    packages = [*ROOT.glob("gem_*/__init__.py"), *ROOT.glob("integrations/*/gem_*/__init__.py")]
    for package in sorted(packages, key=lambda path: ("integrations" in path.parts, path.parent.name)):
        for path in sorted(package.parent.rglob("*.py")):
            parts = path.relative_to(package.parents[1]).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            if not any(part.startswith("_") for part in parts):
                yield ".".join(parts), ast.parse(path.read_text("utf-8"))


def defined(tree: ast.Module) -> set[str]:
    """Return the names that a module defines at its top level and that have no leading underscore."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def exported(tree: ast.Module) -> set[str]:
    """Return the names in ``__all__``; without it, the names that the module defines."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and "__all__" in {getattr(one, "id", "") for one in node.targets}:
            return set(ast.literal_eval(node.value))
    return defined(tree)


def listed(module: str, tree: ast.Module) -> set[str]:
    """Return the public names of a module."""
    return {name for name in exported(tree) | defined(tree) if (module, name) not in ENTRY_POINTS}


def public_names() -> dict[str, set[str]]:
    """Return the public names of each public module that has any."""
    return {name: found for name, tree in modules() if (found := listed(name, tree))}


def origins(module: str, tree: ast.Module) -> set[tuple[str, str]]:
    """Return the public names of a module, each with the module that it is imported from, if it is."""
    homes = {
        alias.asname or alias.name: (node.module or "", alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return {homes.get(name, (module, name)) for name in listed(module, tree)}


def count() -> int:
    """Return the number of public names; what two modules export counts once."""
    found = {module: origins(module, tree) for module, tree in modules()}
    again = {(module, name): (home, name) for module, pairs in found.items() for home, name in pairs}
    names = set().union(*found.values())
    while names != (names := {again.get(pair, pair) for pair in names}):
        pass  # a name may pass through several modules
    return len(names)


def table() -> str:
    """Return the table of the names in each module."""
    found = public_names()
    lines = ["| module | names |", "|---|---|"]
    for module, names in found.items():
        lines.append(f"| `{module}` | " + ", ".join(f"`{name}`" for name in sorted(names)) + " |")
    return f"{count()} names in {len(found)} modules:\n\n" + "\n".join(lines) + "\n"


def fill(text: str) -> str:
    """Return a page with the list in its place."""
    return with_part(text, "names", f"\n{table()}\n")


if __name__ == "__main__":
    rewrite_page(__doc__, fill)
