from __future__ import annotations

from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem_envs._games.minesweeper_solver import mine_risks


def neighbors(rows: int, cols: int) -> list[list[int]]:
    cells = [(r, c) for r in range(rows) for c in range(cols)]
    return [
        [i for i, (r, c) in enumerate(cells) if max(abs(r - row), abs(c - col)) == 1] for row, col in cells
    ]


def by_listing_all(clues, around, num_mines):
    """Compute the probabilities by enumerating every placement of the mines."""
    hidden = [cell for cell in range(len(around)) if cell not in clues]
    count, total = dict.fromkeys(hidden, 0), 0
    for mines in combinations(hidden, num_mines):
        if all(sum(c in mines for c in around[clue]) == number for clue, number in clues.items()):
            total += 1
            for mine in mines:
                count[mine] += 1
    return {cell: n / total for cell, n in count.items()}


@given(rows=st.integers(1, 4), cols=st.integers(2, 4), seed=st.integers(0, 10**6), data=st.data())
def test_risks_match_an_enumeration_of_every_placement(rows, cols, seed, data):
    around, cells = neighbors(rows, cols), rows * cols
    num_mines = data.draw(st.integers(1, max(1, cells // 2)))
    random = Random(seed)
    mines = random.sample(range(cells), num_mines)
    safe = [cell for cell in range(cells) if cell not in mines]
    shown = random.sample(safe, data.draw(st.integers(0, len(safe))))
    clues = {cell: sum(mine in around[cell] for mine in mines) for cell in shown}
    assert mine_risks(clues, around, num_mines) == pytest.approx(by_listing_all(clues, around, num_mines))


def test_certain_cells_have_risk_exactly_zero_and_one():
    around = neighbors(1, 4)
    risks = mine_risks({1: 0}, around, 1)
    assert risks == {0: 0.0, 2: 0.0, 3: 1.0}


def test_a_large_dense_board_is_counted():
    rows = cols = 16
    around = neighbors(rows, cols)
    random = Random(1)
    mines = set(random.sample(range(rows * cols), 50))
    clues = {
        cell: sum(mine in around[cell] for mine in mines)
        for cell in range(rows * cols)
        if cell not in mines and cell % cols < 8
    }
    risks = mine_risks(clues, around, 50)
    assert sum(risks.values()) == pytest.approx(50)
    assert all(risks[mine] > 0 for mine in mines)
