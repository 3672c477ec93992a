"""Calls a function of the program with the arguments of a test, and writes its result."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gem_envs.graders._guest.load import find, load
else:
    from grading.load import find, load

SET = "gem-core:set"  # `gem_envs.graders._outputs.SET`; the module cannot import it inside


def main(names: str, code: str) -> None:
    """Answer the request in the file ``request.json`` with the function's result in ``result.json``."""
    with open("request.json", encoding="utf-8") as file:
        request = json.load(file)
    os.remove("request.json")
    function = find(load(names, code), request["function"])
    answer = plain(function(*restored(request["arguments"])))
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
