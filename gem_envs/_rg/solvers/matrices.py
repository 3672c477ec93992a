"""Solvers of tasks on a matrix of numbers."""

from __future__ import annotations

import re
from fractions import Fraction

Matrix = list[list[int]]

_RULES = {
    "identity": r"- Identity transformation, i\.e\. no change",
    "turn": r"- Rotate the matrix (\d+) degrees",
    "upside down": r"- Horizontally mirror the matrix",
    "left to right": r"- Vertically mirror the matrix",
    "diagonal": r"- Mirror the matrix along the diagonal",
    "counterdiagonal": r"- Mirror the matrix along the counterdiagonal",
    "map": r"- Map each occurrence of (\d+) to (\d+)",
    "divisible": r"- Set all elements divisible by (\d+) to zero",
    "crop": r"- Crop the matrix to rows (\d+)-(\d+) and columns (\d+)-(\d+) \(1-indexed\)",
    "rows": r"- Remove every (\d+)-\w+ row \(1-indexed\)",
    "columns": r"- Remove every (\d+)-\w+ column \(1-indexed\)",
}


def solve_manipulate_matrix(prompt: str) -> str | None:
    """Apply the operations in order; None if one of them is ambiguous and the readings differ."""
    head, _, listed = prompt.partition("\n\nPerform the following series of operations in order:\n")
    start = matrix_below(head)
    lines = [line for line in listed.splitlines() if line.startswith("- ")]
    readings = (
        (False,)
        if "Rotations are clockwise. A horizontal mirror swaps top and bottom" in prompt
        else (False, True)
    )
    results = {
        as_text(_manipulated(start, lines, counterclockwise, swapped))
        for counterclockwise in readings
        for swapped in readings
    }
    return results.pop() if len(results) == 1 else None


def _manipulated(matrix: Matrix, lines: list[str], counterclockwise: bool, swapped: bool) -> Matrix:
    """Apply operations.

    Args:
        matrix: The matrix to begin with.
        lines: One operation per line.
        counterclockwise: Whether to turn against the clock.
        swapped: Whether a horizontal mirror swaps left and right, and a vertical one top and bottom.
    """
    for line in lines:
        name, groups = _operation(line)
        numbers = [int(group) for group in groups]
        if name == "turn":
            quarters = numbers[0] // 90
            for _ in range(quarters if not counterclockwise else -quarters % 4):
                matrix = turned(matrix)
        elif name in ("upside down", "left to right"):
            exchange_rows = (name == "upside down") != swapped
            matrix = matrix[::-1] if exchange_rows else [row[::-1] for row in matrix]
        elif name == "diagonal":
            matrix = _transposed(matrix)
        elif name == "counterdiagonal":
            matrix = turned(turned(_transposed(matrix)))
        elif name == "map":
            matrix = [[numbers[1] if x == numbers[0] else x for x in row] for row in matrix]
        elif name == "divisible":
            matrix = [[x if x % numbers[0] else 0 for x in row] for row in matrix]
        elif name == "crop":
            top, bottom, left, right = numbers
            matrix = [row[left - 1 : right] for row in matrix[top - 1 : bottom]]
        elif name == "rows":
            matrix = _thinned(matrix, numbers[0])
        elif name == "columns":
            matrix = _transposed(_thinned(_transposed(matrix), numbers[0]))
    return matrix


def _operation(line: str) -> tuple[str, tuple[str, ...]]:
    for name, rule in _RULES.items():
        if match := re.fullmatch(rule, line):
            return name, match.groups()
    raise ValueError(f"not an operation on a matrix: {line!r}")


def solve_rotate_matrix(prompt: str) -> str | None:
    """Turn the matrix clockwise."""
    head, matrix = _last_matrix(prompt)
    degrees = int(re.findall(r"by (\d+) degrees clockwise", head)[-1])
    for _ in range(degrees // 90):
        matrix = turned(matrix)
    return as_text(matrix)


def solve_spiral_matrix(prompt: str) -> str | None:
    """Peel the top row, then turn the rest so that the right column becomes the top row."""
    _, matrix = _last_matrix(prompt)
    peeled: list[int] = []
    while matrix:
        peeled += matrix[0]
        matrix = turned(turned(turned(matrix[1:])))
    return " ".join(map(str, peeled))


def judge_pool_matrix(prompt: str, answer: str) -> bool | None:
    """Compare to two decimals; None if regions stick out and the prompt has no rule for them."""
    prompt, _, edges = prompt.partition("\nAt the right and bottom edges,")
    head, matrix = _last_matrix(prompt)
    kind, size_text = re.findall(r"Perform (\w+) pooling .* kernel size of (\d+):", head)[-1]
    size = int(size_text)
    if not edges and (len(matrix) % size or len(matrix[0]) % size):
        return None
    given = [[Fraction(word) for word in line.split()] for line in answer.strip().splitlines()]
    right = [
        [
            _pooled([x for line in matrix[i : i + size] for x in line[j : j + size]], kind)
            for j in range(0, len(matrix[0]), size)
        ]
        for i in range(0, len(matrix), size)
    ]
    if [len(row) for row in given] != [len(row) for row in right]:
        return False
    return all(
        abs(a - b) <= Fraction(1, 200)
        for a, b in zip((x for row in given for x in row), (x for row in right for x in row), strict=True)
    )


def _pooled(region: list[int], kind: str) -> Fraction:
    return Fraction(max(region)) if kind == "max" else Fraction(sum(region), len(region))


def solve_survo(prompt: str) -> str | None:
    """Fill the empty positions; None if that is possible in several ways or none."""
    head, numbers_text = prompt.rsplit("[", 1)[0], re.findall(r"\[([\d, -]+)\]", prompt)[-1]
    matrix = matrix_below(head)
    empty = [(i, j) for i, row in enumerate(matrix[:-1]) for j, x in enumerate(row[:-1]) if x == 0]
    numbers = sorted(map(int, numbers_text.split(",")))
    if len(empty) != len(numbers):
        return None
    found: list[str] = []
    _fill(matrix, empty, numbers, found)
    return found[0] if len(found) == 1 else None


def _fill(matrix: Matrix, empty: list[tuple[int, int]], numbers: list[int], found: list[str]) -> None:
    """Add up to two ways to fill the matrix to `found`."""
    if len(found) > 1:
        return
    if not empty:
        if all(row[-1] == sum(row[:-1]) for row in (*matrix, *_transposed(matrix))):
            found.append(as_text(matrix))
        return
    (i, j), rest = empty[0], empty[1:]
    for number in sorted(set(numbers)):
        matrix[i][j] = number
        done_row = all(place[0] != i for place in rest)
        done_column = all(place[1] != j for place in rest)
        if (not done_row or sum(matrix[i][:-1]) == matrix[i][-1]) and (
            not done_column or sum(row[j] for row in matrix[:-1]) == matrix[-1][j]
        ):
            left = numbers.copy()
            left.remove(number)
            _fill(matrix, rest, left, found)
        matrix[i][j] = 0


def matrix_below(text: str) -> Matrix:
    """Return the last block of lines of whole numbers."""
    block: Matrix = []
    for line in reversed(text.rstrip().splitlines()):
        if re.fullmatch(r"\s*-?\d+(\s+-?\d+)*\s*", line):
            block.insert(0, [int(word) for word in line.split()])
        elif block:
            break
    return block


def _last_matrix(prompt: str) -> tuple[str, Matrix]:
    """Return the text above the matrix at the end, and the matrix."""
    matrix = matrix_below(prompt)
    return "\n".join(prompt.rstrip().splitlines()[: -len(matrix)]), matrix


def as_text(matrix: Matrix) -> str:
    """Return a matrix as it is shown: rows in lines."""
    return "\n".join(" ".join(map(str, row)) for row in matrix)


def turned(matrix: Matrix) -> Matrix:
    """Return a matrix turned clockwise by a quarter."""
    rows, columns = len(matrix), len(matrix[0]) if matrix else 0
    return [[matrix[rows - 1 - i][j] for i in range(rows)] for j in range(columns)]


def _transposed(matrix: Matrix) -> Matrix:
    return [list(column) for column in zip(*matrix, strict=True)]


def _thinned(rows: Matrix, step: int) -> Matrix:
    return [row for place, row in enumerate(rows, 1) if place % step]
