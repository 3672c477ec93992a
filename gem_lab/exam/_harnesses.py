"""Small harnesses with exact gradients: what episodes of several rows and threads need.

    for result in measure():
        print(result.harness, result.credit, result.cosine)

A harness plays one episode with a policy that chooses between a few actions in each context: it rewrites the
history, calls a sub-agent, summarizes, or asks again. All paths are enumerated, and all groups of episodes,
so the gradient of the expected sum of rewards and the expectation of an estimator are exact.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

import numpy as np

from gem_core.advantages import Estimator, Threads, get_estimator, reinforce, with_threads
from gem_core.advantages._threads import ThreadLink
from gem_lab.exam._task import FloatArray

T = TypeVar("T")

Logits: TypeAlias = Mapping[tuple[str, str], float]
"""Logit of an action in a context; 0 if it is not listed."""


@dataclass
class Path:
    """One way in which an episode may go, with one entry per turn in each list.

    Attributes:
        probability: Probability of the path.
        choices: Context and action.
        options: The actions from which the action was chosen.
        rewards: Reward.
        rows: Index of the row that holds the turn.
        tokens: Number of response tokens.
        threads: Thread.
        links: Links of the side threads.
        dropped: Turns that a trainer without their rows would leave out.
    """

    probability: float = 1.0
    choices: list[tuple[str, str]] = field(default_factory=list)
    options: list[tuple[str, ...]] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    threads: list[int] = field(default_factory=list)
    links: dict[int, ThreadLink] = field(default_factory=dict)
    dropped: set[int] = field(default_factory=set)

    def turns_of_rows(self) -> list[list[int]]:
        """Return the turns of each row, in the order of the rows' first turns."""
        return [
            [turn for turn, own in enumerate(self.rows) if own == row] for row in dict.fromkeys(self.rows)
        ]


class _Open(Exception):
    """The script of a play ends at a choice between these options."""

    def __init__(self, options: Sequence[object]) -> None:
        super().__init__(options)
        self.options = options


class Play:
    """One play of a harness, which follows a script of choices and records the path."""

    def __init__(self, logits: Logits, script: Sequence[object]) -> None:
        self.path = Path()
        self._logits, self._script = logits, iter(script)

    def sample(self, context: str, *actions: str, row: int = 0, thread: int = 0, tokens: int = 1) -> str:
        """Let the policy choose an action, which is a turn."""
        action = self._choose(actions)
        weights = {one: math.exp(self._logits.get((context, one), 0.0)) for one in actions}
        path = self.path
        path.probability *= weights[action] / sum(weights.values())
        path.choices.append((context, action))
        path.options.append(actions)
        path.rewards.append(0.0)
        path.rows.append(row)
        path.tokens.append(tokens)
        path.threads.append(thread)
        return action

    def chance(self, probability: float) -> bool:
        """Let an event happen with this probability."""
        happens = self._choose((True, False))
        self.path.probability *= probability if happens else 1 - probability
        return happens

    def pay(self, reward: float, turn: int = -1) -> None:
        """Add a reward to a turn, by default the latest one."""
        self.path.rewards[turn] += reward

    def link(self, thread: int, called_by: int | None, returns_to: int | None) -> None:
        """Link a side thread; see `gem_core.rollout.Thread`."""
        self.path.links[thread] = (called_by, returns_to, False)

    def _choose(self, options: Sequence[T]) -> T:
        for chosen in self._script:
            assert chosen in options
            return chosen  # type: ignore[return-value]
        raise _Open(options)


ToyHarness: TypeAlias = Callable[[Play], None]


def paths(harness: ToyHarness, logits: Logits) -> list[Path]:
    """Return all paths of a harness."""
    found: list[Path] = []
    scripts: list[tuple[object, ...]] = [()]
    while scripts:
        script = scripts.pop()
        play = Play(logits, script)
        try:
            harness(play)
        except _Open as choice:
            scripts += [(*script, option) for option in choice.options]
        else:
            found.append(play.path)
    return [path for path in found if path.probability > 0]


def scores(found: Sequence[Path], logits: Logits) -> list[FloatArray]:
    """Return the gradient of the log-probability of each turn, (turns, parameters), for each path.

    The parameters are the logits of all contexts and actions, in order.
    """
    keys = sorted(
        {
            (context, one)
            for path in found
            for (context, _), options in zip(path.choices, path.options, strict=True)
            for one in options
        }
    )
    columns = {key: column for column, key in enumerate(keys)}
    result = []
    for path in found:
        path_scores = np.zeros((len(path.choices), len(keys)))
        for turn, ((context, action), options) in enumerate(zip(path.choices, path.options, strict=True)):
            weights = np.exp([logits.get((context, one), 0.0) for one in options])
            for one, share in zip(options, weights / weights.sum(), strict=True):
                path_scores[turn, columns[context, one]] = (one == action) - share
        result.append(path_scores)
    return result


def exact_gradient(found: Sequence[Path], turn_scores: Sequence[FloatArray]) -> FloatArray:
    """Return the gradient of the expected sum of rewards, (parameters,); `turn_scores` are `scores`."""
    parts = [
        path.probability * sum(path.rewards) * score.sum(0)
        for path, score in zip(found, turn_scores, strict=True)
    ]
    return np.asarray(np.sum(parts, axis=0))


Credit: TypeAlias = Callable[[Sequence[Path], Sequence[int]], list[FloatArray]]
"""Takes episodes and the group of each; returns the weight of the score of each turn, per episode."""


def by_returns(episodes: Sequence[Path], groups: Sequence[int]) -> list[FloatArray]:
    """REINFORCE with the returns of `gem_core.advantages._threads`."""
    return reinforce(with_threads([one.rewards for one in episodes], [_threads(one) for one in episodes]))


def by_independent_returns(episodes: Sequence[Path], groups: Sequence[int]) -> list[FloatArray]:
    """The same, with all side threads declared as independent."""
    alone = [
        replace(one, links={thread: (*link[:2], True) for thread, link in one.links.items()})
        for one in episodes
    ]
    return by_returns(alone, groups)


def episode_credit(name: str) -> Credit:
    """Return the credit of an estimator that compares episodes, with each episode counted once."""
    estimator: Estimator[..., list[FloatArray]] = get_estimator(name)

    def credit(episodes: Sequence[Path], groups: Sequence[int]) -> list[FloatArray]:
        rewards = with_threads([one.rewards for one in episodes], [_threads(one) for one in episodes])
        return estimator(rewards, group_ids=groups)

    return credit


def by_row(name: str, rewards: str) -> Credit:
    """Return the credit of an estimator that takes each row for an episode.

    Args:
        name: Name of the estimator.
        rewards: "episode" to give each row the sum of the rewards of its episode, "row" for those in the row.
    """
    estimator: Estimator[..., list[FloatArray]] = get_estimator(name)

    def credit(episodes: Sequence[Path], groups: Sequence[int]) -> list[FloatArray]:
        rows = [(index, turns) for index, one in enumerate(episodes) for turns in one.turns_of_rows()]
        paid = []
        for index, turns in rows:
            own = [episodes[index].rewards[turn] for turn in turns]
            paid.append(own if rewards == "row" else [0.0] * (len(own) - 1) + [sum(episodes[index].rewards)])
        given = {"group_ids": [groups[index] for index, _ in rows]} if estimator.needs else {}
        result = [np.zeros(len(one.rewards)) for one in episodes]
        for (index, turns), values in zip(rows, estimator(paid, **given), strict=True):
            result[index][turns] = values
        return result

    return credit


def weighted(credit: Credit, mean: str) -> Credit:
    """Return a credit in a loss that averages over the tokens of each "episode" or "row"."""

    def weighted_credit(episodes: Sequence[Path], groups: Sequence[int]) -> list[FloatArray]:
        result = []
        for one, values in zip(episodes, credit(episodes, groups), strict=True):
            parts = one.turns_of_rows() if mean == "row" else [list(range(len(one.rewards)))]
            result.append(values.copy())
            for turns in parts:
                result[-1][turns] /= sum(one.tokens[turn] for turn in turns)
        return result

    return weighted_credit


def without_dropped(credit: Credit) -> Credit:
    """Return a credit for a trainer that does not train the turns in `Path.dropped`."""

    def kept(episodes: Sequence[Path], groups: Sequence[int]) -> list[FloatArray]:
        return [
            values * [turn not in one.dropped for turn in range(len(values))]
            for one, values in zip(episodes, credit(episodes, groups), strict=True)
        ]

    return kept


def expected_gradient(
    found: Sequence[Path], turn_scores: Sequence[FloatArray], credit: Credit, size: int
) -> FloatArray:
    """Return the exact expectation of the gradient of a group, divided by its size.

    Args:
        found: All paths.
        turn_scores: Result of `scores`.
        credit: The credit of the turns.
        size: Number of episodes in a group.

    Returns:
        float64 (parameters,).
    """
    episodes: list[int] = []
    groups: list[int] = []
    chances: list[float] = []
    for index, members in enumerate(itertools.combinations_with_replacement(range(len(found)), size)):
        ways = math.factorial(size) // math.prod(math.factorial(members.count(one)) for one in set(members))
        chance = ways * math.prod(found[one].probability for one in members)
        episodes += members
        groups += [index] * size
        chances += [chance / size] * size
    values = credit([found[one] for one in episodes], groups)
    parts = zip(episodes, chances, values, strict=True)
    return np.asarray(np.sum([chance * (value @ turn_scores[one]) for one, chance, value in parts], axis=0))


def _threads(path: Path) -> Threads:
    return Threads(tuple(path.threads), path.links)
