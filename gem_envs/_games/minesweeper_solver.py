"""Exact probability of a mine in each hidden cell of a Minesweeper board.

Hidden cells with the same clues around them form a group: only the number of mines in it matters.
Groups that share clues form a part of the board. The placements in a part are counted group by group:
for every combination of mines that the clues still lack, the number of placements by number of mines (a
forward and a backward pass, as in a hidden Markov model). That is exact, and small because few clues are
partially counted at a time. All counts are integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import comb
from typing import TypeAlias

Ways: TypeAlias = dict[int, int]
"""Number of placements by number of mines."""
Needs: TypeAlias = tuple[int, ...]
"""Number of mines that each clue of a part still lacks."""
_NOTHING: Ways = {0: 1}


@dataclass
class _Group:
    """Hidden cells with the same clues around them."""

    clues: tuple[int, ...]
    cells: list[int] = field(default_factory=list)


@dataclass
class _Part:
    """Groups that share clues, directly or through others."""

    groups: list[_Group]
    ways: Ways
    mined: list[Ways]
    """Per group: number of mines in it, summed over the placements, by number of mines in the part."""


def mine_risks(
    clues: Mapping[int, int], neighbors: Sequence[Sequence[int]], num_mines: int
) -> dict[int, float]:
    """Return the probability of a mine in each hidden cell; all consistent placements are equally likely.

    Args:
        clues: Number of mines around each revealed cell.
        neighbors: The cells around each cell of the board.
        num_mines: Number of mines on the whole board.

    Returns:
        Hidden cell to probability, exactly 0 for a cell that must be safe.
    """
    groups: dict[tuple[int, ...], _Group] = {}
    for cell, around in enumerate(neighbors):
        if cell not in clues:
            key = tuple(c for c in around if c in clues)
            groups.setdefault(key, _Group(key)).cells.append(cell)
    free = groups.pop((), _Group(())).cells  # no clue counts these
    parts = [_count(part, clues) for part in _split(list(groups.values()))]

    def on_board(ways: Ways) -> int:
        """Return the placements on the whole board, given those outside `free`."""
        return sum(n * comb(len(free), num_mines - k) for k, n in ways.items() if k <= num_mines)

    everywhere = _NOTHING
    for part in parts:
        everywhere = _product(everywhere, part.ways)
    total = on_board(everywhere)
    risks: dict[int, float] = {}
    for part in parts:
        elsewhere = _NOTHING
        for other in parts:
            if other is not part:
                elsewhere = _product(elsewhere, other.ways)
        for group, mined in zip(part.groups, part.mined, strict=True):
            risk = on_board(_product(elsewhere, mined)) / (total * len(group.cells))
            risks.update(dict.fromkeys(group.cells, risk))
    if free:
        mines = on_board({k: n * (num_mines - k) for k, n in everywhere.items()})
        risks.update(dict.fromkeys(free, mines / (total * len(free))))
    return risks


def _split(groups: list[_Group]) -> list[list[_Group]]:
    """Return the parts, each in an order that leaves few clues partially counted."""
    parts: list[list[_Group]] = []
    seen: set[int] = set()  # clues of the current part
    while groups:
        linked = [group for group in groups if not seen.isdisjoint(group.clues)]
        if not linked:
            parts.append([])
            seen = set()
        chosen = min(linked or groups, key=lambda group: len(set(group.clues) - seen))
        groups.remove(chosen)
        seen.update(chosen.clues)
        parts[-1].append(chosen)
    return parts


def _count(groups: list[_Group], clues: Mapping[int, int]) -> _Part:
    names = sorted({clue for group in groups for clue in group.clues})
    places = [[names.index(clue) for clue in group.clues] for group in groups]
    room = [[0] * len(names)]  # room[i]: cells per clue in the groups from i on, built backwards
    for group, counted in zip(reversed(groups), reversed(places), strict=True):
        room.insert(0, [cells + len(group.cells) * (p in counted) for p, cells in enumerate(room[0])])

    def moves(i: int, needs: Needs) -> list[tuple[int, int, Needs]]:
        """Return (mines, number of placements, remaining needs) for group i."""
        size = len(groups[i].cells)
        minimum = max(0, *(needs[place] - room[i + 1][place] for place in places[i]))
        most = min(size, *(needs[place] for place in places[i]))
        result = []
        for mines in range(minimum, most + 1):
            rest = list(needs)
            for place in places[i]:
                rest[place] -= mines
            result.append((mines, comb(size, mines), tuple(rest)))
        return result

    # before[i]: placements in the groups before i, by the number of mines that the clues still lack.
    before: list[dict[Needs, Ways]] = [{tuple(clues[name] for name in names): _NOTHING}]
    for i in range(len(groups)):
        reached: dict[Needs, Ways] = {}
        for needs, ways in before[i].items():
            for mines, count, rest in moves(i, needs):
                _add(reached.setdefault(rest, {}), ways, mines, count)
        before.append(reached)

    # after: placements in the groups from i on that supply the mines that the clues lack.
    after: dict[Needs, Ways] = dict.fromkeys(before[-1], _NOTHING)
    mined: list[Ways] = [{} for _ in groups]
    for i in reversed(range(len(groups))):
        earlier: dict[Needs, Ways] = {}
        for needs, ways in before[i].items():
            for mines, count, rest in moves(i, needs):
                if rest in after:
                    _add(earlier.setdefault(needs, {}), after[rest], mines, count)
                    _add(mined[i], _product(ways, after[rest]), mines, count * mines)
        after = earlier
    (ways,) = after.values()
    return _Part(groups, ways, mined)


def _add(total: Ways, ways: Ways, mines: int, count: int) -> None:
    """Add `count` times `ways`, with `mines` more mines each."""
    for k, n in ways.items():
        total[k + mines] = total.get(k + mines, 0) + n * count


def _product(first: Ways, second: Ways) -> Ways:
    """Return the placements of both together."""
    result: Ways = {}
    for mines, count in first.items():
        _add(result, second, mines, count)
    return result
