"""A solver that reads a word drawn with characters: it draws the word in the fonts of pyfiglet."""

from __future__ import annotations

from functools import cache
from typing import Any

from gem_envs._rg.solvers.reading import find

_LONGEST_WORD = 50


def judge_figlet_font(prompt: str, answer: str) -> bool | None:
    """Draw the word, with or without spaces between its letters, in each font of the same height.

    None if the font lacks a letter. Whether the letters of a font are legible is not considered.
    """
    drawing, word = find(r"\n\n(.*)", prompt)[1], answer.strip()
    if not (word.isascii() and word.isprintable() and 0 < len(word) <= _LONGEST_WORD):
        return False
    lines = drawing.count("\n")
    for name in [name for name, height in _heights().items() if lines % height == 0]:
        figlet = _figlet(name)
        if drawing in (figlet.renderText(" ".join(word)), figlet.renderText(word)):
            return True if all(_drawn(letter, figlet.Font) for letter in word.replace(" ", "")) else None
    return False


@cache
def _heights() -> dict[str, int]:
    """Return the number of lines of a letter, by font."""
    from pyfiglet import FigletFont

    heads = {name: FigletFont.preloadFont(name).partition("\n")[0] for name in FigletFont.getFonts()}
    return {name: int(head.split()[1]) for name, head in heads.items()}


@cache
def _figlet(font: str) -> Any:
    from pyfiglet import Figlet

    return Figlet(font=font)


def _drawn(letter: str, font: Any) -> bool:
    """Return whether a letter consists of more than spaces, breaking or not."""
    return any(set(line) - {" ", font.hardBlank} for line in font.chars.get(ord(letter), []))
