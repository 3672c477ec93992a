"""`read_json` and `read_json_file`: JSON that another program wrote, with every failure as a `ValueError`.

``json.loads`` raises RecursionError for deep texts on some versions of Python and returns values on others
that no recursive function can process. It accepts numbers that are no float. This module imports the standard
library only.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

DEEPEST = 100
"""Maximum number of lists and objects within each other."""
MOST_BYTES = 1 << 30
MOST_DIGITS = 308
"""Maximum number of digits of a whole number; each such number is also a finite float."""

_MANY_DIGITS = re.compile(rf"[0-9](?<![0-9][0-9])[0-9]{{{MOST_DIGITS}}}")


def read_json(
    text: str | bytes,
    *,
    deepest: int = DEEPEST,
    most_bytes: int = MOST_BYTES,
    finite: bool = False,
    long_integer: Callable[[str], Any] | None = None,
) -> Any:
    """Return the value of a JSON text.

    Args:
        text: The text; bytes are UTF-8, UTF-16, or UTF-32.
        deepest: Maximum number of lists and objects within each other.
        most_bytes: Maximum size of the text, in bytes if it is bytes and in characters if it is a str.
        finite: Whether NaN and infinities, which JSON lacks, are errors.
        long_integer: Returns the value of a whole number with more than `MOST_DIGITS` digits. None makes such
            a number an error.

    Raises:
        ValueError: The text is not JSON, too large, or too deep, or has a number that is not accepted.
    """
    if len(text) > most_bytes:
        raise ValueError(f"more than {most_bytes} bytes of JSON")
    if isinstance(text, bytes | bytearray):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    hooks: dict[str, Any] = {"parse_constant": _no_constant, "parse_float": finite_float} if finite else {}
    if _MANY_DIGITS.search(text):

        def whole_number(digits: str) -> Any:
            if len(digits.lstrip("-")) <= MOST_DIGITS:
                return int(digits)
            return (long_integer or _no_long_integer)(digits)

        hooks["parse_int"] = whole_number
    too_deep = f"JSON with more than {deepest} lists and objects within each other"
    try:
        value = json.loads(text, **hooks)
    except RecursionError:
        raise ValueError(too_deep) from None
    if text.count("[") + text.count("{") > deepest and not is_shallow(value, deepest):
        raise ValueError(too_deep)
    return value


def read_json_file(path: str | Path, *, most_bytes: int = MOST_BYTES, finite: bool = False) -> Any:
    """Return the value of a JSON file, of which at most `most_bytes` are read; see `read_json`.

    Raises:
        ValueError: As in `read_json`.
        OSError: The file cannot be read.
    """
    with open(path, "rb") as file:
        return read_json(file.read(most_bytes + 1), most_bytes=most_bytes, finite=finite)


def is_shallow(value: Any, deepest: int = DEEPEST) -> bool:
    """Return whether at most `deepest` lists and objects are within each other."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(deepest):
        parts = (one.values() if type(one) is dict else one for one in level)
        level = [part for inner in parts for part in inner if type(part) is dict or type(part) is list]
        if not level:
            return True
    return False


def finite_float(digits: str) -> float:
    """Return the float with these digits, as ``parse_float`` of a decoder.

    Raises:
        ValueError: It would be infinite, as 1e999.
    """
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"the number {digits[:40]} is too large for a float")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _no_long_integer(digits: str) -> NoReturn:
    raise ValueError(f"a whole number of {len(digits)} digits")
