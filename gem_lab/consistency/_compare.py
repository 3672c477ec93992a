"""Compare the record of a trainer with the record of gem_core, level by level."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from gem_lab._arguments import check_type
from gem_lab.consistency._record import FLAGS, Played, Record

ADVANTAGE_TOLERANCE = 1e-5
"""Tolerance, relative to the largest advantage of the batch if above 1, because advantages are float32."""
GRADIENT_TOLERANCE = 1e-4
LEVELS = {1: "rollout", 2: "advantages", 3: "update"}


@dataclass
class ConsistencyLevel:
    """Result of one level.

    Attributes:
        equal: Whether the trainer's results equal gem_core's; None if the record does not contain them.
        largest: Largest numerical difference; None if the level has no numbers.
        differences: One line per difference.
        not_carried: Maps each field that could not be compared to the reason.
    """

    equal: bool | None
    largest: float | None = None
    differences: list[str] = field(default_factory=list)
    not_carried: dict[str, str] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """Summary for a cell of a table."""
        if self.equal is None:
            return "not run"
        if not self.equal:
            return f"differs: {len(self.differences)} findings" if len(self.differences) > 1 else "differs"
        return f"equal ({self.largest:.1e})" if self.largest else "equal"


@dataclass
class Comparison:
    """Result for a trainer.

    Attributes:
        trainer: Name of the trainer.
        levels: Maps the number of each level, 1 to 3, to its result.
    """

    trainer: str
    levels: dict[int, ConsistencyLevel]

    @property
    def equal(self) -> bool:
        """Whether at least one level was compared and none differs."""
        known = [level.equal for level in self.levels.values() if level.equal is not None]
        return bool(known) and all(known)


def compare(core: Record, other: Record) -> Comparison:
    """Compare a trainer's record with gem_core's record of the same tasks, responses, and weights.

    Raises:
        ConfigError: An argument is no record.
    """
    for name, record in (("core", core), ("other", other)):
        check_type(name, record, Record, "such as Record.read('record.json')")
    if core.model != other.model:
        text = f"the weights differ: {other.model[:12]} instead of {core.model[:12]}"
        return Comparison(
            other.trainer, {number: ConsistencyLevel(False, differences=[text]) for number in (1, 2, 3)}
        )
    pairs, differences = _pairs(core.episodes, other.episodes)
    rollout = ConsistencyLevel(None, 0.0, differences, dict(other.not_carried))
    advantages = ConsistencyLevel(None, 0.0)
    for mine, theirs in pairs:
        _compare_rollout(mine, theirs, rollout)
        _compare_advantages(mine, theirs, advantages)
    rollout.equal = not rollout.differences
    largest = max((abs(a) for played in core.episodes for a in played.advantages), default=0.0)
    assert advantages.largest is not None
    if not pairs or not advantages.largest <= ADVANTAGE_TOLERANCE * max(1.0, largest):
        advantages.differences.append(f"advantages differ by up to {advantages.largest:.3g}")
    for name, measured in other.cases.items():
        gap = _or_infinite(measured)
        advantages.largest = max(advantages.largest, gap)
        if gap > ADVANTAGE_TOLERANCE:
            advantages.differences.append(f"{name}: advantages differ by up to {gap:.3g}")
    advantages.equal = not advantages.differences
    return Comparison(other.trainer, {1: rollout, 2: advantages, 3: _compare_update(other)})


def _pairs(mine: list[Played], theirs: list[Played]) -> tuple[list[tuple[Played, Played]], list[str]]:
    """Pair the episodes of each task, ordered by their tokens, and report different numbers of episodes."""
    tasks: defaultdict[tuple[str, int], tuple[list[Played], list[Played]]] = defaultdict(lambda: ([], []))
    for side, episodes in enumerate((mine, theirs)):
        for played in episodes:
            tasks[played.env_id, played.seed][side].append(played)
    pairs: list[tuple[Played, Played]] = []
    differences = []
    for (env_id, seed), (left, right) in sorted(tasks.items()):
        if len(left) != len(right):
            differences.append(f"{env_id}, seed {seed}: {len(right)} episodes instead of {len(left)}")
        pairs += zip(sorted(left, key=_order), sorted(right, key=_order), strict=False)
    return pairs, differences


def _order(played: Played) -> tuple[bool, list[int]]:
    return played.trainable, played.token_ids


def _compare_rollout(mine: Played, theirs: Played, level: ConsistencyLevel) -> None:
    where = f"{mine.env_id}, seed {mine.seed}"
    carried = [
        name
        for name in ("trainable", "token_ids", "turn_ids", "row_lengths", *FLAGS)
        if name not in level.not_carried
    ]
    for name in carried:
        if getattr(mine, name) != getattr(theirs, name):
            values = (
                ""
                if name.endswith("_ids")
                else f" {getattr(theirs, name)!r}, {getattr(mine, name)!r} expected"
            )
            level.differences.append(f"{where}: {name} differs{values}")
    if "rewards" not in level.not_carried:
        gap = _largest_gap(_float32(mine.rewards), _float32(theirs.rewards))
        level.largest = max(level.largest or 0.0, gap)
        if gap:
            level.differences.append(f"{where}: rewards differ by up to {gap:.3g}")


def _compare_advantages(mine: Played, theirs: Played, level: ConsistencyLevel) -> None:
    gap = max(_largest_gap(mine.advantages, theirs.advantages), _or_infinite(theirs.spread))
    level.largest = max(level.largest or 0.0, gap)


def _float32(rewards: list[float] | None) -> list[float]:
    """Round to float32, as trainers do, so that rewards equal in float32 are equal."""
    rounded: list[float] = np.asarray(rewards or [], np.float32).tolist()
    return rounded


def _largest_gap(mine: list[float], theirs: list[float]) -> float:
    if len(mine) != len(theirs):
        return math.inf
    return max((_or_infinite(abs(a - b)) for a, b in zip(mine, theirs, strict=True)), default=0.0)


def _or_infinite(gap: float) -> float:
    """Turn NaN into infinity, because comparisons and `max` ignore NaN."""
    return gap if math.isfinite(gap) else math.inf


def _compare_update(other: Record) -> ConsistencyLevel:
    if other.gradient is None:
        return ConsistencyLevel(None)
    level = ConsistencyLevel(other.gradient <= GRADIENT_TOLERANCE, other.gradient)
    if not level.equal:
        level.differences.append(f"the gradient differs by {other.gradient:.3g} of its norm")
    return level
