"""The fifteen puzzle in several sizes: slide the tiles into order."""

from __future__ import annotations

from functools import lru_cache
from random import Random

from gem_core._util.checks import check_int
from gem_envs._base import MoveResult, TurnBasedEnv, check_together
from gem_envs._games.fifteen_solver import goal, shortest_way, slides
from gem_envs._games.grid import OPPOSITE
from gem_envs._text import direction

_SIZES = ((3, 10), (3, 20), (4, 50))
_SEARCH = 2000
"""Number of positions the oracle searches for one move, about 0.05 s."""


class FifteenPuzzle(TurnBasedEnv[str]):
    r"""Slide the tiles of a square board into order, with the blank in the last corner.

    Action: ``\boxed{up}``, ``down``, ``left``, or ``right``: the direction in which a tile
    moves into the blank, so ``up`` moves the tile below the blank. A move without such a tile is illegal.

    Rewards: 1 for the solved board. The last turn, if its move is legal, earns the fraction of cells
    (including the blank) that are right. A format error ends the episode with -0.1.

    The initial board is the solved one after at most `max_turns` slides, none of them straight back, so every
    board can be solved within its turns.

    `max_return` is 1, and the oracle reaches it in every variant: it plays a shortest solution if it
    finds one among 2,000 positions (nearly always for 2 and 3 rows), and otherwise undoes the slides.
    """

    state_fields = (*TurnBasedEnv.state_fields, "rows", "tiles", "solution")

    def __init__(self, num_rows: int | None = 3, max_turns: int | None = 20) -> None:
        """Set the size, or have it drawn at each reset.

        Args:
            num_rows: Number of rows, and of columns, of the board.
            max_turns: Turn limit. None (together with `num_rows`) draws (rows, turns) from (3, 10),
                (3, 20), and (4, 50) at each reset.

        Raises:
            ConfigError: Only one of the two is None, or one is out of range.
        """
        check_together(num_rows=num_rows, max_turns=max_turns)
        self.size: tuple[int, int] | None = None
        if num_rows is not None and max_turns is not None:
            self.size = (check_int("num_rows", num_rows, 2, 10), check_int("max_turns", max_turns, 1))

    def new_game(self) -> None:
        self.rows, self.turn_limit = self.size or self.random.choice(_SIZES)
        most = min(self.turn_limit, 20 * self.rows * self.rows)  # more slides do not mix the board any better
        self._mix(self.random.randint((most + 1) // 2, most))
        if self._solved():  # only with 2 rows, where 12 slides can lead back to the start
            self._slide(self.solution[-1])

    def _mix(self, count: int) -> None:
        """Slide tiles of the solved board at random, none straight back."""
        turns, draw = _turns(self.rows), self.random.random
        tiles = list(goal(self.rows))
        blank, back = len(tiles) - 1, ""
        self.solution: list[str] = []  # moves that solve the board, the next one last
        for _ in range(count):
            options = turns[blank, back]
            source, back = options[int(draw() * len(options))]
            tiles[blank] = tiles[source]
            blank = source
            self.solution.append(back)
        tiles[blank] = 0
        self.tiles = tiles

    def rules(self) -> str:
        last = self.rows * self.rows - 1
        return (
            f"Sliding puzzle with {last} tiles on {self.rows} rows and {self.rows} columns; _ is the blank. "
            f"In at most {self.turn_limit} turns, bring the tiles into the order 1 to {last}, row by row from"
            " the top left, with the blank at the bottom right. A turn moves a tile next to the blank into "
            "it: \\boxed{up} moves the tile below the blank up, \\boxed{down} the tile above it down, "
            "\\boxed{left} the tile to its right, and \\boxed{right} the tile to its left."
        )

    def board(self) -> str:
        return (_template(self.rows) % tuple(self.tiles)).replace(" 0", " _")

    parse = staticmethod(direction)

    def play(self, move: str) -> MoveResult:
        moved = self._slide(move)
        if not moved:
            return f"There is no tile that can move {move}.", 0.0, "illegal"
        if self._solved():
            return "All tiles are in order.", 1.0, "solved"
        return f"Tile {moved} moved {move}.", 0.0, "continue"

    def progress(self) -> float:
        right = sum(tile == home for tile, home in zip(self.tiles, goal(self.rows), strict=True))
        return right / len(self.tiles)

    def limit_reward(self) -> float:
        return self.progress()

    def random_move(self, random: Random) -> str:
        move, _ = random.choice(slides(self.rows)[self.tiles.index(0)])
        return move

    def best_move(self) -> str:
        way = shortest_way(tuple(self.tiles), self.rows, _SEARCH) if self.rows <= 4 else None
        return self.solution[-1] if way is None else way[0]

    # -- plumbing -----------------------------------------------------------------------------

    def _solved(self) -> bool:
        return not self.tiles[-1] and tuple(self.tiles) == goal(self.rows)

    def _slide(self, move: str) -> int:
        """Move a tile into the blank; return its number, or 0 if there is no tile on that side."""
        tiles, rows = self.tiles, self.rows
        blank = tiles.index(0)
        if move == "up":
            source = blank + rows
            if source >= len(tiles):
                return 0
        elif move == "down":
            source = blank - rows
            if source < 0:
                return 0
        elif move == "left":
            source = blank + 1
            if not source % rows:
                return 0
        else:
            if not blank % rows:
                return 0
            source = blank - 1
        tile = tiles[source]
        tiles[blank], tiles[source] = tile, 0
        if self.solution and self.solution[-1] == move:
            self.solution.pop()
        else:
            self.solution.append(OPPOSITE[move])
        return tile


@lru_cache(maxsize=16)
def _turns(rows: int) -> dict[tuple[int, str], tuple[tuple[int, str], ...]]:
    """Map the cell of the blank and the reverse move to the other moves, as tile and reverse move."""
    return {
        (blank, back): tuple((source, OPPOSITE[move]) for move, source in moves if move != back)
        for blank, moves in enumerate(slides(rows))
        for back in ("", *OPPOSITE)
    }


@lru_cache(maxsize=16)
def _template(rows: int) -> str:
    return "\n".join(["%2d" + " %2d" * (rows - 1)] * rows)
