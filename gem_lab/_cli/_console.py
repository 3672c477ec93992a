"""Output of the commands: rich tables and bars on a terminal if rich is installed, otherwise plain text.

Piped or captured output is always plain, so programs read the same text whether or not rich is installed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from gem_core._util.urls import without_secrets
from gem_core._util.visible import visible

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")

_EMPTY = ("", "-")
"""Cells that mean "no value"."""

_LEAST_WRAPPED = 30
"""Minimum width of a wrapped column, in characters."""

COMMAND = "reproduce: "
"""Text before a command that a user copies."""


def open_standard_streams() -> None:
    """Open ``/dev/null`` in place of a standard stream that the caller has closed, as some daemons do.

    Otherwise the next file that is opened would take its place, and get what libraries print.
    """
    for descriptor, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
            os.set_inheritable(descriptor, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # until the end


def tolerate_unencodable_text() -> None:
    """Escape characters that the terminal's encoding lacks, and replace unreadable input."""
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def note(text: str) -> None:
    """Print one line for the user on standard error, if it can be written."""
    with contextlib.suppress(OSError):
        print(f"gem-core: {visible(without_secrets(text))}", file=sys.stderr, flush=True)


def print_text(text: str = "") -> None:
    """Print lines on standard output, with control characters made visible."""
    print(visible(text), flush=True)


def print_json(value: Any) -> None:
    """Print one JSON document on standard output."""
    print(json.dumps(value, indent=2))


def rich_console(stream: TextIO | None = None) -> Console | None:
    """Return a rich console, or None if the output should be plain text.

    Output is plain if rich is not installed or the stream is not a terminal.

    Args:
        stream: Stream to print to; None for standard output.
    """
    stream = stream or sys.stdout
    if not stream.isatty() or not _has_rich():
        return None
    from rich.console import Console

    return Console(file=stream)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "") -> None:
    """Print a table: with lines and colors on a terminal with rich, otherwise as aligned columns.

    Columns without a value are omitted. On a terminal, only the widest column is wrapped. If the others leave
    too little space for it, each row becomes a paragraph that starts with its first cell.
    """
    columns, title = [visible(name, lines=False) for name in columns], visible(title)
    rows = [[visible(cell) for cell in row] for row in rows]
    used = [0, *(n for n in range(1, len(columns)) if any(row[n] not in _EMPTY for row in rows))]
    columns, rows = [columns[n] for n in used], [[row[n] for n in used] for row in rows]
    console = rich_console()
    if console is None:
        _print_plain_table(columns, rows, title)
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    widths = _widths(columns, rows)
    widest = widths.index(max(widths))
    left = console.width - sum(widths) - 2 * len(widths) + widths[widest]
    if left < min(widths[widest], _LEAST_WRAPPED):
        if title:
            console.print(Text(title, "bold"))
        for row in rows:
            _print_paragraph(console, columns, row)
        return
    table = Table(title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for index, column in enumerate(columns):
        style = "cyan" if index == 0 else ""
        table.add_column(column, overflow="fold", style=style, no_wrap=index != widest)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def _print_paragraph(console: Console, columns: Sequence[str], row: Sequence[str]) -> None:
    """Print a row as its first cell and a list of its other cells with their names, except empty ones."""
    from rich.padding import Padding
    from rich.text import Text

    console.print(Text(row[0], "cyan"))
    lines = [Text()]
    for name, cell in zip(columns[1:], row[1:], strict=True):
        if cell in _EMPTY:
            continue
        item = Text.assemble((f"{name} " if name else "", "dim"), cell)
        if lines[-1] and lines[-1].cell_len + item.cell_len + 5 > console.width:
            lines.append(Text())
        lines[-1].append_text(Text.assemble("   " if lines[-1] else "", item))
    for line in lines:
        console.print(Padding(line, (0, 0, 0, 2)))


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(columns, *rows, strict=True)]


def _print_plain_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> None:
    if title:
        print(title)
    widths = _widths(columns, rows)
    for row in (columns, *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_heading(text: str) -> None:
    """Print a line, highlighted on a terminal with rich."""
    console, text = rich_console(), visible(text)
    if console is None:
        print(f"-- {text}", flush=True)
        return
    from rich.text import Text

    console.print(Text(f"── {text}", "bold cyan"), soft_wrap=True)


def print_labeled(label: str, text: str, style: str) -> None:
    """Print lines after a label, aligned behind it.

    On a terminal with rich, the label has a style such as "green", and the rest of a long line is indented
    further. A line that starts with `COMMAND` is not broken, so that the command can be copied.
    """
    console, text = rich_console(), visible(text)
    left = " " * (len(label) + 1)
    if console is None:
        print(f"{label} {text}".replace("\n", f"\n{left}"), flush=True)
        return
    from rich.text import Text

    for index, line in enumerate(text.split("\n")):
        own = line[: len(line) - len(line.lstrip())]
        start = Text.assemble((left, "") if index else (label, style), "" if index else " ", own)
        if line.lstrip().startswith(COMMAND):
            console.print(start + Text(line.lstrip()), soft_wrap=True)
            continue
        indent = start.cell_len + 2
        wrapped = Text(line.lstrip()).wrap(console, max(console.width - indent, _LEAST_WRAPPED))
        first, *rest = wrapped or [Text()]
        console.print(start + first, soft_wrap=True)
        for more in rest:
            console.print(Text(" " * indent) + more, soft_wrap=True)


@contextlib.contextmanager
def progress(description: str, total: float | None) -> Iterator[Callable[[float], None]]:
    """Show a progress bar on standard error while the block runs, or nothing without a terminal.

    Args:
        description: Text before the bar.
        total: Amount of all the work; None if it is unknown, for the elapsed instead of the remaining time.

    Yields:
        Function to call with the completed amount of `total`.
    """
    console = rich_console(sys.stderr)
    if console is None:
        yield lambda done: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    time = TimeElapsedColumn() if total is None else TimeRemainingColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), time)
    piped = not sys.stdout.isatty()  # the bar must not redirect such output to standard error
    with Progress(*columns, console=console, transient=True, redirect_stdout=not piped) as bar:
        task = bar.add_task(description, total=total)
        yield lambda done: bar.update(task, completed=done)


def counted(items: Iterable[T], advance: Callable[[float], None]) -> Iterator[T]:
    """Yield the items, and report the number of earlier items before each one."""
    for index, item in enumerate(items):
        advance(index)
        yield item


def _has_rich() -> bool:
    try:
        return importlib.util.find_spec("rich") is not None
    except ValueError:  # sys.modules["rich"] is None, which forbids the import
        return False
