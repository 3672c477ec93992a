"""Runs a program as a script or as a module, and finds its functions."""

from __future__ import annotations

import builtins
import sys
import types
from typing import Any

MODULE = "solution"
FILE = "program.py"
RECURSION_LIMIT = 50_000
"""As in LiveCodeBench."""


def run_script(names: str, code: str, exit_is_end: bool, deep: bool) -> None:
    """Run a program as a script that reads and writes.

    Args:
        names: Import statements of the names that the dataset supplies.
        code: The program.
        exit_is_end: Whether the program may end by `sys.exit` with any status.
        deep: Whether the limit of recursion is `RECURSION_LIMIT`.
    """
    if deep:
        sys.setrecursionlimit(RECURSION_LIMIT)
    module = types.ModuleType("__main__")
    module.__file__ = "main.py"
    sys.modules["__main__"] = module
    exec(names, module.__dict__)
    try:
        exec(compile(code, "main.py", "exec", dont_inherit=True), module.__dict__)
    except SystemExit:
        if not exit_is_end:
            raise


def load(names: str, code: str, prelude: str = "") -> types.ModuleType:
    """Run a program as a module, so that its block ``if __name__ == "__main__"`` does not.

    It can use, but does not thereby define, what `names` imports.
    """
    sys.setrecursionlimit(RECURSION_LIMIT)
    base: dict[str, Any] = {}
    exec(names, base)
    module = types.ModuleType(MODULE)
    sys.modules[MODULE] = module
    module.__dict__["__builtins__"] = {**builtins.__dict__, **base}
    if prelude:
        exec(compile(prelude, "prelude.py", "exec", dont_inherit=True), module.__dict__)
    exec(compile(code, FILE, "exec", dont_inherit=True), module.__dict__)
    return module


def find(module: types.ModuleType, name: str) -> Any:
    """Return a function of a module, or the method of an object of one of its classes.

    `name` may have dots, as in ``Solution.add`` or ``Solution().add``. Of several classes with the method,
    ``Solution`` is meant.
    """
    *path, last = name.replace("()", "").split(".")
    owner: Any = module
    for part in path:
        owner = getattr(owner, part)
    if path:
        return getattr(owner() if isinstance(owner, type) else owner, last)
    solution = getattr(module, "Solution", None)
    if isinstance(solution, type) and hasattr(solution, last):
        return getattr(solution(), last)
    if callable(getattr(module, last, None)):
        return getattr(module, last)
    classes = [owner for owner in _classes(module) if callable(getattr(owner, last, None))]
    if len(classes) != 1:
        raise NameError("name " + repr(name) + " is not defined")
    return getattr(classes[0](), last)


def _classes(owner: Any) -> list[type]:
    """Return the classes that a module or class defines, nested ones included."""
    found: list[type] = []
    for value in list(vars(owner).values()):
        if isinstance(value, type) and value.__module__ == MODULE and value is not owner:
            found += [value, *_classes(value)]
    return found
