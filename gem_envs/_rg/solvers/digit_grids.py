"""Solvers of puzzles whose solution is digits: sums of letters, and grids with inequalities or weights."""

from __future__ import annotations

import itertools
import re

from gem_envs._rg.solvers.reading import UnknownPrompt, find, grid, integers

Cell = tuple[int, int]
Options = dict[Cell, frozenset[int]]
_BELOW, _ABOVE = "\u2227", "\u2228"
"""The larger of two digits in a column is below or above this sign."""


def judge_cryptarithm(prompt: str, answer: str) -> bool | None:
    """Put the digits in: different letters, different digits, no leading zero, and a right sum."""
    *terms, total = re.findall(r"[A-Z]+", find(r"cryptarithm:\n\n(.*?)\n\n", prompt)[1])
    pairs = [re.fullmatch(r"\s*([A-Z])\s*=\s*([0-9])\s*", pair) for pair in answer.split(",")]
    digits = {pair[1]: int(pair[2]) for pair in pairs if pair}
    if set(digits) != set("".join([*terms, total])) or len(pairs) != len(digits):
        return False
    if len(set(digits.values())) != len(digits):
        return False
    if "No leading letter can be zero" in prompt and any(not digits[word[0]] for word in (*terms, total)):
        return False
    values = [int("".join(str(digits[letter]) for letter in word)) for word in (*terms, total)]
    return sum(values[:-1]) == values[-1]


def judge_futoshiki(prompt: str, answer: str) -> bool | None:
    """Compare the digits with the solution; None if there are several or none."""
    size = int(find(r"(\d+)x\1 Futoshiki", prompt)[1])
    lines = find(r"puzzle:\n\n(.*?)\n\nEnsure", prompt)[1].split("\n")
    if len(lines) != 2 * size - 1:
        raise UnknownPrompt(f"not {2 * size - 1} lines: {prompt[:200]!r}")
    all_digits = frozenset(range(1, size + 1))
    options: Options = {}
    smaller: list[tuple[Cell, Cell]] = []
    for place, line in enumerate(lines):
        padded, i = line.ljust(4 * size), place // 2
        for j in range(size):
            sign, after = padded[4 * j], padded[4 * j + 2]
            if place % 2:
                smaller += [((i, j), (i + 1, j))] * (sign == _BELOW) + [((i + 1, j), (i, j))] * (
                    sign == _ABOVE
                )
            else:
                options[i, j] = all_digits if sign == "_" else frozenset({int(sign)})
                smaller += [((i, j), (i, j + 1))] * (after == "<") + [((i, j + 1), (i, j))] * (after == ">")
    found: list[Options] = []
    _fill(options, smaller, size, found)
    if len(found) != 1:
        return None
    digits = [row for row in grid(answer) if row]
    return digits == [[min(found[0][i, j]) for j in range(size)] for i in range(size)]


def _fill(options: Options, smaller: list[tuple[Cell, Cell]], size: int, found: list[Options]) -> None:
    """Add up to two solutions to `found`."""
    narrowed = _narrowed(dict(options), smaller, size)
    if narrowed is None:
        return
    open_cells = [cell for cell, digits in narrowed.items() if len(digits) > 1]
    if not open_cells:
        found.append(narrowed)
        return
    cell = min(open_cells, key=lambda one: len(narrowed[one]))
    for digit in sorted(narrowed[cell]):
        if len(found) < 2:
            _fill(narrowed | {cell: frozenset({digit})}, smaller, size, found)


def _narrowed(options: Options, smaller: list[tuple[Cell, Cell]], size: int) -> Options | None:
    """Remove digits that break a rule until nothing changes; None if a cell has no digit left."""
    lines = [[(i, j) for j in range(size)] for i in range(size)]
    lines += [[(i, j) for i in range(size)] for j in range(size)]
    before = None
    while before != options:
        before = dict(options)
        for low, high in smaller:
            smallest, largest = min(options[low]), max(options[high])
            options[low] = frozenset(digit for digit in options[low] if digit < largest)
            options[high] = frozenset(digit for digit in options[high] if digit > smallest)
            if not options[low] or not options[high]:
                return None
        for line in lines:
            known: frozenset[int] = frozenset()
            for cell in line:
                if len(options[cell]) == 1:
                    if options[cell] <= known:
                        return None
                    known |= options[cell]
            for cell in line:
                if len(options[cell]) > 1:
                    options[cell] -= known
                    if not options[cell]:
                        return None
            for digit in range(1, size + 1):
                places = [cell for cell in line if digit in options[cell]]
                if not places:
                    return None
                if len(places) == 1:
                    options[places[0]] = frozenset({digit})
    return options


def solve_kakurasu(prompt: str) -> str | None:
    """Fill the rows from the top; None if that is possible in several ways or none."""
    sums = find(r"(?i)row (?:sums|constraints?)[^\[]*(\[[\d, ]*\]).*?column[^\[]*(\[[\d, ]*\])", prompt)
    rows, columns = (integers(text) for text in sums.groups())
    choices = [
        [ones for ones in itertools.product((0, 1), repeat=len(columns)) if _weighed(ones) == row]
        for row in rows
    ]
    partial: list[tuple[tuple[int, ...], list[tuple[int, ...]]]] = [(tuple(columns), [])]
    for i, options in enumerate(choices, 1):
        partial = [
            (rest, [*lines, ones])
            for left, lines in partial
            for ones in options
            if min(rest := tuple(value - i * one for value, one in zip(left, ones, strict=True))) >= 0
        ]
    solutions = [lines for rest, lines in partial if not any(rest)]
    return "\n".join(" ".join(map(str, ones)) for ones in solutions[0]) if len(solutions) == 1 else None


def _weighed(ones: tuple[int, ...]) -> int:
    return sum(j * one for j, one in enumerate(ones, 1))
