"""Where an error was raised, as an episode's error names it."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

from gem_core._util.messages import error_place


def line_of(function: object, text: str) -> int:
    lines, first = inspect.getsourcelines(function)  # type: ignore[arg-type]
    return first + next(index for index, line in enumerate(lines) if text in line)


def in_this_file() -> None:
    raise KeyError("score")


def in_the_standard_library() -> None:
    json.loads("{")


@pytest.mark.parametrize("function", [in_this_file, in_the_standard_library])
def test_the_innermost_line_of_the_users_own_code_is_named(function: object) -> None:
    with pytest.raises((KeyError, ValueError)) as raised:
        function()  # type: ignore[operator]
    text = "raise" if function is in_this_file else "json.loads"
    assert error_place(raised.value) == f" (_util/test_error_place.py:{line_of(function, text)})"


def test_code_of_a_caller_is_no_place() -> None:
    with pytest.raises(TypeError) as raised:
        in_this_file(1)  # type: ignore[call-arg]
    assert error_place(raised.value, __file__) == ""
    with pytest.raises(ValueError, match="Expecting") as late:
        in_the_standard_library()
    assert Path(error_place(late.value, __file__).partition(":")[0]).name == "decoder.py"
