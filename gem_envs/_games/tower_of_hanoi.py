"""Tower of Hanoi: bring all disks to one of three pegs."""

from __future__ import annotations

from functools import lru_cache
from itertools import permutations
from random import Random

from gem_core._util.checks import check_int
from gem_envs._base import MoveResult, TurnBasedEnv, check_together
from gem_envs._text import parts

_PEGS = "ABC"
_MOVES = {_PEGS[i] + _PEGS[j]: (i, j) for i, j in permutations(range(3), 2)}
"""The source and the target of each move."""
_SIZES = ((3, 10), (4, 20), (5, 35))


class TowerofHanoi(TurnBasedEnv[str]):
    r"""Move all disks to the target peg, one at a time, never a larger one onto a smaller one.

    Each episode draws the target peg and a legal position in which the largest disk is on another peg, so no
    fixed sequence of moves wins every episode. The shortest solution has from 2**(n - 1) to 2**n - 1 moves.

    Action: ``\boxed{A C}`` moves the top disk of A to C; ``A,C``, ``AC``, and ``A->C`` are read
    alike, in either case. A move that breaks the rules or names no peg is illegal.

    Rewards: 1 when all disks are on the target. The last turn, if its move is legal, earns the fraction
    of the disks on the target. A format error ends the episode with -0.1.

    `max_return` is 1. The oracle plays the shortest solution from any position. Every registered variant has
    at least 2**n - 1 turns, so there it always reaches the maximum.
    """

    state_fields = (*TurnBasedEnv.state_fields, "pegs", "target")

    def __init__(self, num_disks: int | None = 4, max_turns: int | None = 20) -> None:
        """Set the size, or have it drawn at each reset.

        Args:
            num_disks: Number of disks.
            max_turns: Turn limit. None (together with `num_disks`) draws (disks, turns) from (3, 10),
                (4, 20), and (5, 35) at each reset.

        Raises:
            ConfigError: Only one of the two is None, or one is out of range.
        """
        check_together(num_disks=num_disks, max_turns=max_turns)
        self.size: tuple[int, int] | None = None
        if num_disks is not None and max_turns is not None:
            self.size = (check_int("num_disks", num_disks, 1, 100), check_int("max_turns", max_turns, 1))

    def new_game(self) -> None:
        disks, self.turn_limit = self.size or self.random.choice(_SIZES)
        self.target = self.random.randrange(3)
        self.pegs: list[list[int]] = [[], [], []]
        self.pegs[(self.target + self.random.randint(1, 2)) % 3].append(disks)
        for disk in range(disks - 1, 0, -1):
            self.pegs[self.random.randrange(3)].append(disk)

    def rules(self) -> str:
        disks = sum(map(len, self.pegs))
        return (
            f"Tower of Hanoi with {disks} disks on three pegs, A, B and C; disk 1 is the smallest. "
            f"Bring all disks to peg {_PEGS[self.target]} in at most {self.turn_limit} turns. "
            "A turn moves the top disk of one peg to another peg, and a disk never lies on a smaller one. "
            "Give each move in a box, for example \\boxed{A C} from peg A to peg C."
        )

    def board(self) -> str:
        a, b, c = self.pegs
        return f"A: {_row(tuple(a))}\nB: {_row(tuple(b))}\nC: {_row(tuple(c))}"

    def parse(self, text: str) -> str | None:
        letters = text.replace(" ", "")
        if len(letters) != 2:
            letters = "".join(parts(text.replace("-", " ").replace(">", " ")) or ())
        return letters.upper() if len(letters) == 2 and letters.isascii() and letters.isalpha() else None

    def play(self, move: str) -> MoveResult:
        if move not in _MOVES:
            known = move[0] in _PEGS and move[1] in _PEGS
            return "A move needs two different pegs." if known else "The pegs are A, B and C.", 0.0, "illegal"
        source, target = _MOVES[move]
        pegs = self.pegs
        if not pegs[source]:
            return f"Peg {move[0]} is empty.", 0.0, "illegal"
        disk = pegs[source][-1]
        if pegs[target] and pegs[target][-1] < disk:
            return f"Disk {disk} cannot lie on disk {pegs[target][-1]}.", 0.0, "illegal"
        pegs[target].append(pegs[source].pop())
        if not pegs[source] and not pegs[3 - source - target] and target == self.target:
            return f"All disks are on peg {move[1]}.", 1.0, "solved"
        return f"Disk {disk} moved from {move[0]} to {move[1]}.", 0.0, "continue"

    def progress(self) -> float:
        return len(self.pegs[self.target]) / sum(map(len, self.pegs))

    def limit_reward(self) -> float:
        return self.progress()

    def random_move(self, random: Random) -> str:
        tops = [disks[-1] if disks else 1000 for disks in self.pegs]
        legal = [(i, j) for i in range(3) for j in range(3) if tops[i] < tops[j]]
        source, target = random.choice(legal)
        return f"{_PEGS[source]} {_PEGS[target]}"

    def best_move(self) -> str:
        """Return the first move of a shortest solution.

        From the largest disk down, each disk has a target peg. A disk on another peg must move there,
        which makes the third peg the target of the smaller disks; the smallest disk that must move goes
        first.
        """
        goal, move = self.target, (0, 0)
        where = {disk: peg for peg, disks in enumerate(self.pegs) for disk in disks}
        for disk in sorted(where, reverse=True):
            if where[disk] != goal:
                move = (where[disk], goal)
                goal = 3 - where[disk] - goal
        return f"{_PEGS[move[0]]} {_PEGS[move[1]]}"


@lru_cache(maxsize=1024)  # there are few rows, and every turn shows all of them
def _row(disks: tuple[int, ...]) -> str:
    return " ".join(map(str, disks)) or "-"
