r"""A screenshot of a real session of `gem-core play`, for the documentation.

    python tools/screenshot.py docs/images/play.svg game:Minesweeper-v0-easy --seed 3 -- \
        "reveal 2 2" :hint "reveal 0 0" "reveal 9 9"

This runs the command in a pseudo-terminal, types each line at the prompt, quits, and writes the content of
the terminal as SVG. It requires rich and a system with pseudo-terminals.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

PROMPT = b"> "
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""Fonts in rich's template, which would be loaded from a server."""


def session(command: list[str], lines: list[str]) -> str:
    """Return the content of a terminal after typing the lines one after the other."""
    screen, inside = pty.openpty()
    process = subprocess.Popen(
        command, stdin=inside, stdout=inside, stderr=inside, env={**os.environ, "TERM": "xterm-256color"}
    )
    os.close(inside)
    shown, waiting = b"", list(lines)
    while True:
        try:
            read = os.read(screen, 65536)
        except OSError:  # the other end is closed
            break
        if not read:
            break
        shown += read
        if waiting and shown.endswith(PROMPT):
            os.write(screen, waiting.pop(0).encode() + b"\n")
    process.wait()
    os.close(screen)
    return shown.decode().replace("\r\n", "\n")


def screenshot(shown: str, width: int) -> str:
    """Return the text of a terminal, including colors, as SVG."""
    console = Console(record=True, width=width, file=StringIO())
    console.print(Text.from_ansi(shown.rstrip()))
    return FONTS.sub("", console.export_svg(title="gem-core play"))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("id")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--width", type=int, default=100)
    parser.add_argument("lines", nargs="+")
    args = parser.parse_args()
    command = ["play", args.id, "--seed", args.seed]
    shown = session([sys.executable, "-m", "gem_lab", *command], [*args.lines, ":quit"])
    args.out.write_text(screenshot(f"$ gem-core {' '.join(command)}\n{shown}", args.width), encoding="utf-8")


if __name__ == "__main__":
    main()
