"""Driver of a tested function, which runs inside the sandbox, before and after the program of the model.

`gem_core.graders.programs` sends the source of this module with a call of `main` appended. It needs nothing
but the standard library of Python 3.8 or newer. The program runs as a module, so its block
``if __name__ == "__main__"`` does not, and it can use, but does not thereby define, the names of
`base_imports`.
"""

from __future__ import annotations

import builtins
import json
import os
import sys
import types
from typing import Any

SET = "gem-core:set"  # `gem_core.graders.outputs.SET`; the module cannot import it inside
MODULE = "solution"
FILE = "program.py"


def main(names: str, code: str) -> None:
    """Answer the request in the file ``request.json``: call a function, or run a test of asserts.

    A request is ``{"function", "arguments"}``, whose result goes to ``result.json``, or ``{"prelude",
    "setup", "test", "entry_point", "proof"}``, whose proof goes there once the test has passed.
    """
    with open("request.json", encoding="utf-8") as file:
        request = json.load(file)
    os.remove("request.json")
    sys.setrecursionlimit(50_000)  # as LiveCodeBench does
    if "function" in request:
        function = find(load(names, code), request["function"])
        answer = plain(function(*restored(request["arguments"])))
    else:
        check(names, code, request)
        answer = request["proof"]
    with open("result.json", "w", encoding="utf-8") as file:
        json.dump(answer, file)


def restored(arguments: list[Any]) -> list[Any]:
    """Return the arguments; a dictionary as the only one gets back its whole numbers as keys."""
    if len(arguments) != 1 or not isinstance(arguments[0], dict):
        return arguments
    try:
        return [{int(key): value for key, value in arguments[0].items()}]
    except ValueError:
        return arguments


def load(names: str, code: str, prelude: str = "") -> types.ModuleType:
    """Run a program as a module."""
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


def plain(value: Any) -> Any:
    """Return a result as a value of JSON: tuples, arrays, and other iterables become lists."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, (float, str)):
        return float(value) if isinstance(value, float) else str(value)
    if isinstance(value, dict):
        return {
            key if isinstance(key, (str, int, float)) else repr(key): plain(v) for key, v in value.items()
        }
    if isinstance(value, (set, frozenset)):
        return {SET: [plain(part) for part in value]}
    if hasattr(value, "tolist"):  # an array or a number of numpy
        return plain(value.tolist())
    if isinstance(value, (bytes, bytearray)):
        return repr(value)
    if hasattr(value, "__iter__"):
        return [plain(part) for part in value]
    return float(value)  # a decimal or a fraction


def check(names: str, code: str, request: dict[str, Any]) -> None:
    """Run a test of asserts on a program.

    The prelude runs before the program. What a test uses of the prelude is not what the program made of it.
    """
    module = load(names, code, request["prelude"])
    if request["entry_point"]:
        names_of_test: dict[str, Any] = {"__name__": "test"}
        exec(compile(request["prelude"], "prelude.py", "exec", dont_inherit=True), names_of_test)
        candidate = guarded(find(module, request["entry_point"]))
        names_of_test[request["entry_point"]] = candidate
    else:
        names_of_test = {name: guarded(value) for name, value in vars(module).items()}
    exec(compile(request["setup"], "setup.py", "exec", dont_inherit=True), names_of_test)
    exec(compile(request["test"], "test.py", "exec", dont_inherit=True), names_of_test)


def guarded(function: Any) -> Any:
    """Return a function of the program that rejects results which decide themselves what they equal."""
    if isinstance(function, type) or not callable(function):
        return function

    def call(*arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        _reject_own_equality(result)
        return result

    return call


def _reject_own_equality(value: Any) -> None:
    code = getattr(type(value).__eq__, "__code__", None)
    if code is not None and code.co_filename == FILE:
        raise TypeError("the result is of a class that defines when it is equal")
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, (list, tuple, set, frozenset)):
        for part in value:
            _reject_own_equality(part)
