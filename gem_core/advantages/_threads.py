"""Returns in an episode with several threads: sub-agents, compaction calls, rejected attempts.

A thread is a conversation of its own, with the turns that the policy sampled in it. Thread 0 is the main one.
A side thread has a link to two turns of the episode:

- `called_by`: its step includes the thread, so it earns the rewards inside. None: before the first turn.
- `returns_to`: the first turn whose reward may depend on the result of the thread. None: no reward does.

| thread | called_by | returns_to |
|---|---|---|
| sub-agent, whose answer is a tool result of turn p | p | p |
| call that summarizes the history between turns k and k + 1 | k | k + 1 |
| attempt that was rejected because of its content | turn before it | turn that replaces it |
| background agent, started by turn p, whose result turn q collects | p | q |

The return of turn i contains every reward that its response may influence. Let ``rho_i = r_i + sum of S_c``
over the threads c that turn i called, where ``S_c`` is the discounted sum of the rho of the thread's turns.
Then ``G_i = rho_i + gamma * G_next``, where next is the next turn of the same thread. After the last turn of
a side thread follows, without discount, ``G_j`` for ``j = returns_to``, or ``r_j + gamma * G_next(j)`` if j
also called the thread: the rewards of the other threads that j called are no consequence of this one. So a
call takes no time of its caller: a sub-agent of 50 turns does not discount its caller by gamma^50.

Threads may also act on each other in other ways, such as in a shared sandbox. A later reward that is on no
path from turn i therefore counts in ``G_i`` as well, without discount, unless one of the two threads is
`independent`. Leaving it out lowers the variance, but between threads that share something the gradient may
have the wrong sign.

The score of an episode, which estimators that compare episodes use, is the return of its first turn with the
rewards of the threads that were called before it: every reward counts once. With gamma = 1, the expected sum
of ``grad log pi * G_i`` over the turns is the gradient of the expected sum of rewards, whatever the threads
are.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np

from gem_core.advantages._stats import FloatArray
from gem_core.errors import ConfigError

ThreadLink: TypeAlias = tuple[int | None, int | None, bool]
"""`called_by` and `returns_to` of a side thread, and whether it is independent, as in `rollout.Thread`."""


@dataclass(frozen=True)
class Threads:
    """The threads of an episode.

    Attributes:
        of: Thread of each turn; 0 is the main one.
        links: The link of every side thread.

    Raises:
        ConfigError: A side thread has no link, a link has no thread, a link names no turn or a turn of the
            thread itself, a thread begins before the turn that called it, or a turn returns to itself.
    """

    of: tuple[int, ...]
    links: Mapping[int, ThreadLink] = field(default_factory=dict)

    def __post_init__(self) -> None:
        turns = range(len(self.of))
        if missing := sorted(set(self.of) - {0} - self.links.keys()):
            raise ConfigError(f"thread {missing[0]} has no link: expected one for each thread but 0")
        for thread, (called_by, returns_to, _) in self.links.items():
            if thread not in self._turns or thread == 0:
                raise ConfigError(f"thread {thread} has a link, but no turn; only side threads have links")
            for name, turn in (("called_by", called_by), ("returns_to", returns_to)):
                if turn is not None and (turn not in turns or self.of[turn] == thread):
                    raise ConfigError(
                        f"thread {thread}: {name}={turn}: expected the index of a turn outside of the "
                        "thread, or None"
                    )
            first = self._turns[thread][0]
            if called_by is not None and called_by > first:
                raise ConfigError(f"thread {thread}: called_by={called_by}, but it begins at turn {first}")
        _ = self._beside  # follows all paths

    @cached_property
    def _turns(self) -> dict[int, list[int]]:
        """The turns of each thread, in order."""
        turns: dict[int, list[int]] = {}
        for turn, thread in enumerate(self.of):
            turns.setdefault(thread, []).append(turn)
        return turns

    def returns(self, rewards: FloatArray, gamma: float) -> tuple[FloatArray, float]:
        """Return the return of each turn, float64 (turns,), and the score of the episode."""
        turn_weights, score_weights = self.coefficients(gamma)
        return turn_weights @ rewards, float(score_weights @ rewards)

    def coefficients(self, gamma: float) -> tuple[FloatArray, FloatArray]:
        """Return the coefficients of the rewards in the returns, (turns, turns), and in the score, (turns,).

        The discount `gamma` applies per turn of a thread.
        """
        turn_weights, score_weights = self._along_paths(gamma)
        return turn_weights + self._beside, score_weights

    @cached_property
    def _beside(self) -> FloatArray:
        """1 for each later turn on no path from a turn, unless one of their threads is independent."""
        threads = np.array(self.of, dtype=np.int64)
        alone = np.array([thread > 0 and self.links[thread][2] for thread in self.of], dtype=np.bool_)
        allowed = (threads[:, None] != threads) & ~alone[:, None] & ~alone
        off = np.triu((self._along_paths(1.0)[0] == 0) & allowed, 1)
        return np.asarray(off, dtype=np.float64)

    def _along_paths(self, gamma: float) -> tuple[FloatArray, FloatArray]:
        """Return the coefficients without those of rewards that are on no path.

        Raises:
            ConfigError: A turn returns to itself.
        """
        size = len(self.of)
        calls: dict[int | None, list[int]] = {}
        for thread, (called_by, _, _) in self.links.items():
            calls.setdefault(called_by, []).append(thread)
        own = np.eye(size)
        inside: dict[int, FloatArray] = {}

        def step(turn: int) -> FloatArray:
            """Return rho of a turn."""
            total: FloatArray = own[turn].copy()
            for thread in calls.get(turn, ()):
                total += whole(thread)
            return total

        def whole(thread: int) -> FloatArray:
            """Return S of a thread."""
            if thread not in inside:
                total = np.zeros(size)
                for turn in reversed(self._turns[thread]):
                    total = step(turn) + gamma * total
                inside[thread] = total
            return inside[thread]

        then: dict[int, int] = {}
        added, discount = np.zeros((size, size)), np.ones(size)
        for turn, after in (pair for turns in self._turns.values() for pair in itertools.pairwise(turns)):
            then[turn], added[turn], discount[turn] = after, gamma * step(after), gamma
        for thread, (called_by, returns_to, _) in self.links.items():
            if returns_to is not None:
                last = self._turns[thread][-1]
                then[last] = returns_to
                added[last] = own[returns_to] if called_by == returns_to else step(returns_to)
        rest = self._follow(then, added, discount)
        turn_weights = np.array([step(turn) + rest[turn] for turn in range(size)]).reshape(size, size)
        first = [*calls.get(None, ()), *([0] if 0 in self._turns else [])]
        return turn_weights, np.sum([whole(thread) for thread in first], axis=0)

    @staticmethod
    def _follow(then: Mapping[int, int], added: FloatArray, discount: FloatArray) -> FloatArray:
        """Return ``rest_i = added_i + discount_i * rest_then(i)`` of every turn i."""
        rest = np.zeros_like(added)
        known: set[int] = set()
        for first in range(len(added)):
            path = [first]
            while path[-1] in then and path[-1] not in known:
                if then[path[-1]] in path:
                    raise ConfigError(
                        f"threads: what follows turn {path[-1]} leads back to it; a thread cannot return "
                        "to a turn from which it is reached"
                    )
                path.append(then[path[-1]])
            for turn in reversed(path):
                if turn in then and turn not in known:
                    rest[turn] = added[turn] + discount[turn] * rest[then[turn]]
                known.add(turn)
        return rest
