"""Finds all solutions of a Sudoku, always filling the cell with the fewest candidates next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache


@lru_cache(maxsize=4)
def peers(scale: int) -> tuple[tuple[int, ...], ...]:
    """Return, for each cell in row order, the other cells of its row, column, and box."""
    box = 2 if scale == 4 else 3
    place = [(r, c, r // box * box + c // box) for r in range(scale) for c in range(scale)]
    return tuple(
        tuple(
            other for other, where in enumerate(place) if other != cell and any(map(int.__eq__, where, here))
        )
        for cell, here in enumerate(place)
    )


def candidates(cells: Sequence[int], cell: int, scale: int) -> list[int]:
    """Return the numbers that an empty cell may hold by the rules."""
    taken = {cells[peer] for peer in peers(scale)[cell]}
    return [number for number in range(1, scale + 1) if number not in taken]


def solutions(cells: Sequence[int], scale: int) -> Iterator[tuple[int, ...]]:
    """Yield all solutions."""
    board = list(cells)
    around = peers(scale)
    everything = (1 << scale) - 1  # bit n - 1 stands for the number n
    free = [everything if not number else 0 for number in board]
    for cell, number in enumerate(board):
        if number:
            for peer in around[cell]:
                free[peer] &= ~(1 << number - 1)

    def search() -> Iterator[tuple[int, ...]]:
        best, fewest = -1, scale + 1
        for cell, number in enumerate(board):
            if not number:
                count = free[cell].bit_count()
                if count < fewest:
                    best, fewest = cell, count
                    if count < 2:
                        break
        if best < 0:
            yield tuple(board)
            return
        options = free[best]
        for number in range(1, scale + 1):
            bit = 1 << number - 1
            if options & bit:
                changed = [peer for peer in around[best] if not board[peer] and free[peer] & bit]
                for peer in changed:
                    free[peer] ^= bit
                board[best] = number
                yield from search()
                board[best] = 0
                for peer in changed:
                    free[peer] ^= bit

    yield from search()
