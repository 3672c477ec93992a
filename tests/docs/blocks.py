"""Fenced code blocks of a Markdown page, with the marks in their info strings."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUN, DATA = {"python", "bash"}, {"json", "yaml", "toml", "text"}
MARKS = {"gpu", "slow"}
_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<info>[^`]*)$")
_NEEDS = re.compile(r"<!-- needs: (?P<extra>\w+) -->")


@dataclass(frozen=True)
class Block:
    """One fenced block; `line` is the number of its first line of code, counted from 1."""

    page: str
    line: int
    language: str
    marks: frozenset[str]
    code: str

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """Return README.md and every page under docs, except recorded results, as paths from the root."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    names = [path.relative_to(ROOT).as_posix() for path in found]
    return [name for name in names if not name.startswith("docs/results/")]


def extra_of(page: str) -> str | None:
    """Return the extra that a page needs, from a separate line ``<!-- needs: train -->``."""
    match = _NEEDS.search((ROOT / page).read_text())
    return match["extra"] if match else None


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page in order."""
    return parse(page, (ROOT / page).read_text())


def command_lines(page: str, *start: str) -> list[list[str]]:
    """Return the words of each command in the bash blocks of a page that begins with the words `start`."""
    code = "\n".join(block.code for block in blocks(page) if block.language == "bash")
    return [words for words in split_commands(code) if words[: len(start)] == [*start]]


def split_commands(code: str) -> list[list[str]]:
    """Return the words of each command of a bash script that has one command per line."""
    lines = [shlex.split(line, comments=True) for line in code.replace("\\\n", " ").splitlines()]
    return [words for words in lines if words]


def commands(page: str, text: str, values: Mapping[str, str] | None = None) -> list[list[str]]:
    """Return the words of each command in the bash block of a page that contains a text.

    Args:
        page: Path of the page.
        text: Text that only one block contains.
        values: Maps shell expressions, such as ``$PWD`` or ``"$@"``, to what replaces them.
    """
    (code,) = [block.code for block in blocks(page) if block.language == "bash" and text in block.code]
    for expression, value in (values or {}).items():
        code = code.replace(expression, value)
    return split_commands(code)


def code_cells(notebook: Path) -> list[str]:
    """Return the code of a Jupyter notebook, one text per cell."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def parse(page: str, text: str) -> list[Block]:
    """Return the blocks of `text`.

    Raises:
        ValueError: A block lacks a known language, has an unknown mark, or is not closed.
    """
    found = []
    lines = iter(enumerate(text.splitlines(), start=1))
    for number, line in lines:
        opening = _FENCE.match(line)
        if not opening:
            continue
        language, *marks = opening["info"].split() or [""]
        marks = [mark for mark in marks if "=" not in mark]  # title="..." is for the site
        if language not in RUN | DATA or not MARKS.issuperset(marks):
            raise ValueError(
                f"{page}:{number}: a block says one of {', '.join(sorted(RUN | DATA))}, and after it "
                f"nothing or {' or '.join(sorted(MARKS))}; not {opening['info']!r}"
            )
        code = []
        for _, inner in lines:
            if inner.strip() == opening["fence"]:
                break
            code.append(inner)
        else:
            raise ValueError(f"{page}:{number}: this block is never closed")
        source = textwrap.dedent("\n".join(code)) + "\n"
        found.append(Block(page, number + 1, language, frozenset(marks), source))
    return found
