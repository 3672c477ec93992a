"""Sudoku on 4x4 or 9x9 cells."""

from __future__ import annotations

from functools import cache, lru_cache
from random import Random

from gem_core._util.checks import check_int, expected
from gem_envs._base import MoveResult, TurnBasedEnv, check_together
from gem_envs._games.data import read_lines
from gem_envs._games.sudoku_solver import candidates
from gem_envs._text import integers

_SIZES = ((6, 12, 4), (31, 50, 9))
_FEWEST = {4: 4, 9: 24}
"""Number of given cells of the bundled puzzles, by scale."""


class Sudoku(TurnBasedEnv[list[int]]):
    r"""Fill the empty cells so that every row, column, and box holds each number once.

    Action: ``\boxed{row col number}``, all 1-based. A move that leaves the board, names a filled cell, or
    repeats a number in its row, column, or box is illegal. Any other number that differs from the solution is
    rejected as wrong; that is a legal move and uses up the turn.

    Rewards: 1 / initially empty cells for each right number, 1 in total for the solved
    board. Nothing is paid at the turn limit. A format error ends the episode with -0.1.

    Every puzzle has exactly one solution: it is one of 212 bundled puzzles proven to have one solution,
    with numbers relabeled, rows and columns exchanged and more cells given, none of which adds a solution.
    There are more than 10**14 9x9 puzzles.

    `max_return` is 1. The oracle fills the cell with the fewest candidates with its number in the
    only solution, and reaches the maximum if `max_turns` is at least the number of empty cells, as in every
    registered variant.
    """

    state_fields = (*TurnBasedEnv.state_fields, "scale", "cells", "solution", "empty")

    def __init__(self, clues: int | None = 30, max_turns: int | None = 60, scale: int | None = 9) -> None:
        """Set the size, or have it drawn at each reset.

        Args:
            clues: Number of given cells: 4 to 15 of 16, or 24 to 80 of 81.
            max_turns: Turn limit. None (together with the two others) draws (clues, turns, scale) from
                (6, 12, 4) and (31, 50, 9) at each reset.
            scale: Number of rows and of columns: 4 or 9.

        Raises:
            ConfigError: Only some of the three are None, or one is out of range.
        """
        check_together(clues=clues, max_turns=max_turns, scale=scale)
        self.size: tuple[int, int, int] | None = None
        if clues is not None and max_turns is not None and scale is not None:
            if not isinstance(scale, int) or scale not in _FEWEST:
                raise expected("scale", scale, "4 or 9")
            check_int("clues", clues, _FEWEST[scale], scale * scale - 1)
            self.size = (clues, check_int("max_turns", max_turns, 1), scale)

    def new_game(self) -> None:
        clues, self.turn_limit, self.scale = self.size or self.random.choice(_SIZES)
        puzzle = self.random.choice(_puzzles(self.scale))
        line = [puzzle[cell] for cell in self._exchanged()]
        numbers = self.random.sample(range(1, self.scale + 1), self.scale)
        self.solution = [numbers[abs(number) - 1] for number in line]
        empty = [cell for cell, number in enumerate(line) if number < 0]
        shown = set(self.random.sample(empty, clues - len(line) + len(empty)))
        shown.update(cell for cell, number in enumerate(line) if number > 0)
        self.cells = [number if cell in shown else 0 for cell, number in enumerate(self.solution)]
        self.empty = len(line) - clues

    def _exchanged(self) -> list[int]:
        """Return the cells, row by row, after exchanges of rows and columns that keep the rules."""
        rows, cols = self._shuffled_lines(), self._shuffled_lines()
        if self.random.random() < 0.5:
            return [col * self.scale + row for row in rows for col in cols]
        return [row * self.scale + col for row in rows for col in cols]

    def _shuffled_lines(self) -> list[int]:
        """Return rows or columns in a new order that keeps the lines of each box together."""
        box = 2 if self.scale == 4 else 3
        draw = self.random.sample
        return [band * box + i for band in draw(range(box), box) for i in draw(range(box), box)]

    def rules(self) -> str:
        box = 2 if self.scale == 4 else 3
        return (
            f"Sudoku on {self.scale} rows and {self.scale} columns, numbered from 1. Fill the cells that "
            f"show a dot in at most {self.turn_limit} turns, so that every row, every column and every "
            f"{box}x{box} box holds each number from 1 to {self.scale} once. There is exactly one solution, "
            "and only its numbers are accepted. Give row, column and number of each move in a box, for "
            "example \\boxed{1 4 3} for 3 in row 1 and column 4."
        )

    def board(self) -> str:
        return (_template(self.scale) % tuple(self.cells)).replace("0", ".")

    parse = staticmethod(integers)

    def play(self, move: list[int]) -> MoveResult:
        scale = self.scale
        if len(move) != 3:
            return f"A move is a row, a column, and a number; you gave {len(move)}.", 0.0, "illegal"
        row, col, number = move
        if not (0 < row <= scale and 0 < col <= scale and 0 < number <= scale):
            return f"Row, column and number are from 1 to {scale}.", 0.0, "illegal"
        cell = (row - 1) * scale + col - 1
        cells = self.cells
        if cells[cell]:
            return f"Row {row}, column {col} holds {cells[cell]} already.", 0.0, "illegal"
        if number != self.solution[cell]:
            if number not in candidates(cells, cell, scale):
                return f"There is a {number} already in that row, column or box.", 0.0, "illegal"
            return f"{number} is wrong at row {row}, column {col}.", 0.0, "continue"
        cells[cell] = number
        if 0 not in cells:
            return "The puzzle is solved.", 1 / self.empty, "solved"
        return f"{number} is right at row {row}, column {col}.", 1 / self.empty, "continue"

    def progress(self) -> float:
        return 1 - self.cells.count(0) / self.empty

    def random_move(self, random: Random) -> str:
        cell = random.choice([cell for cell, number in enumerate(self.cells) if not number])
        return self._words(cell, random.choice(candidates(self.cells, cell, self.scale)))

    def best_move(self) -> str:
        """Return the solution of the cell with the fewest candidates."""
        empty = [cell for cell, number in enumerate(self.cells) if not number]
        cell = min(empty, key=lambda cell: len(candidates(self.cells, cell, self.scale)))
        return self._words(cell, self.solution[cell])

    def verify(self, action: str) -> bool | None:
        """Return whether the only solution of the board that the player sees has the number of a move.

        True for the move that completes the board, None for a right move before it. Every move is wrong if
        the board has no solution, or more than one.
        """
        from gem_envs._games.sudoku_second_solver import ways_to_fill

        self._require_running("verify")
        move = next((move for box in self.find(action) if (move := self.parse(box.strip()))), None)
        if move is None:
            return None
        board = self.board()
        ways = ways_to_fill(board)
        if len(ways) != 1 or tuple(move) not in ways[0]:
            return False
        return True if board.count(".") == 1 else None

    def _words(self, cell: int, number: int) -> str:
        return f"{cell // self.scale + 1} {cell % self.scale + 1} {number}"


@cache
def _puzzles(scale: int) -> tuple[tuple[int, ...], ...]:
    """Return the bundled puzzles: the number of each cell, negative if it is not given."""
    lines = [line for line in read_lines("sudoku.txt") if len(line) == scale * scale]
    return tuple(tuple(int(c) if c.isdigit() else 96 - ord(c) for c in line) for line in lines)


@lru_cache(maxsize=4)
def _template(scale: int) -> str:
    """Return the template of the board, with a %d for each cell and no digit 0."""
    box = 2 if scale == 4 else 3

    def line(label: str, fields: list[str]) -> str:
        parts = [" ".join(fields[i : i + box]) for i in range(0, scale, box)]
        return f"{label}  {' | '.join(parts)}"

    lines = [line("  ", [str(col + 1) for col in range(scale)]).replace("|", " ")]
    for row in range(scale):
        if row and row % box == 0:
            lines.append("    " + "-+-".join(["-" * (2 * box - 1)] * box))
        lines.append(line(f"{row + 1:>2}", ["%d"] * scale))
    return "\n".join(lines)
