"""Shell scripts that start a trainer, and settings as flags or as overrides of hydra."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gem_core._util.files import write_atomically

_PLAIN = re.compile(r"[A-Za-z_/.][\w./:@-]*")
_OTHER_TYPES = ("true", "false", "null", "none", "inf", "nan")


class Verbatim(str):
    """A word that the shell expands, written into the script without further quoting."""


def write_script(
    path: Path, command: str, lines: Iterable[Sequence[str]], *, notes: Iterable[str] = (), before: str = ""
) -> None:
    """Write a script that runs a command in the script's folder, with the script's arguments appended.

    Args:
        path: Path of the script. An existing file is replaced.
        command: Start of the command, up to its options.
        lines: Words of the command, one list per line.
        notes: Comments at the top, for the user of the script.
        before: Shell code before the command.
    """
    options = [" ".join(w if isinstance(w, Verbatim) else shlex.quote(w) for w in words) for words in lines]
    text = "\n".join(
        [
            "#!/usr/bin/env bash",
            *(f"# {note}" for note in notes),
            "set -eu",
            'cd "$(dirname "${BASH_SOURCE[0]}")"',
            *([before] if before else []),
            " \\\n  ".join([f"exec {command}", *options, '"$@"']),
            "",
        ]
    )
    write_atomically(path, [text])
    os.chmod(path, 0o755)


def as_flags(values: Mapping[str, Any]) -> list[list[str]]:
    """Return settings as ``--name value`` flags, one per line.

    True is a flag without a value, a list or tuple is a flag with several values, and a mapping is written as
    JSON.
    """
    lines = []
    for name, value in values.items():
        words = [] if value is True else value if isinstance(value, list | tuple) else [value]
        words = [json.dumps(word) if isinstance(word, Mapping) else word for word in words]
        lines.append([f"--{name}", *(word if isinstance(word, str) else str(word) for word in words)])
    return lines


def assignments(values: Mapping[str, Any]) -> list[list[str]]:
    """Return ``key=value`` overrides in hydra's grammar, one per line."""
    return [[f"{key}={_word(value)}"] for key, value in values.items()]


def _word(value: Any) -> str:
    """Return the value of an override, without quotes around plain text."""
    plain = isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _OTHER_TYPES
    return str(value) if plain else _quoted(value)


def _quoted(value: Any) -> str:
    if isinstance(value, str):
        escaped = re.sub(r'(\\*)"', r'\1\1\\"', value)  # a backslash is an escape only before a quote
        ending = re.search(r"\\*$", escaped)
        return f'"{escaped}{ending[0] if ending else ""}"'
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_quoted(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_quoted, value)) + "]"
    return json.dumps(value)
