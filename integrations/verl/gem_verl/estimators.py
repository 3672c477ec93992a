"""``algorithm.adv_estimator=rebn`` and its kin: gem_core's estimators under verl's signature.

They work on the rows of any agent loop: those of `gem_verl`, verl's single-turn and tool loops, your
own. A turn is a run of 1s in the response mask, and its reward is the sum of the token-level rewards
from its first token up to the next turn's, a KL penalty in the reward included.

The trainer mode ``gem_sync`` knows more than verl hands to an estimator: turn ids, and which rows are
turns of one episode. It leaves that in a `BatchFacts` around the call.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from verl.trainer.ppo.core_algos import register_adv_est

from gem_core.advantages.registry import get_estimator
from gem_core.advantages.single_turns import by_episode
from gem_core.advantages.stats import ReturnStats
from gem_core.errors import ConfigError
from gem_verl.options import ESTIMATORS, estimator_options

logger = logging.getLogger("verl.gem")  # in verl's processes only its own loggers have a handler


@dataclass
class BatchFacts:
    """What the trainer mode knows about the rows of a batch.

    Attributes:
        turn_ids: (rows, tokens), -1 off-response; None when each row is a turn.
        episodes: For rows that are turns, the number of the row's episode; None otherwise.
        turns: For rows that are turns, the row's number within its episode; None otherwise.
        stats: Set by the estimator: statistics of the returns.
    """

    turn_ids: torch.Tensor | None = None
    episodes: list[int] | None = None
    turns: list[int] | None = None
    stats: ReturnStats = field(default_factory=ReturnStats)


_facts: ContextVar[BatchFacts | None] = ContextVar("gem_verl_facts", default=None)


@contextlib.contextmanager
def known(facts: BatchFacts) -> Iterator[BatchFacts]:
    """Let the estimator that verl calls inside this block see `facts`."""
    token = _facts.set(facts)
    try:
        yield facts
    finally:
        _facts.reset(token)


def estimate(
    name: str,
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    config: Any = None,
    index: np.ndarray[Any, Any] | None = None,
    **unused: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages and returns of a batch, each (rows, tokens) float32.

    Args:
        name: One of `ESTIMATORS`.
        token_level_rewards: (rows, tokens).
        response_mask: (rows, tokens). A row of zeros (a pad, a failed episode) counts nowhere.
        config: verl's section ``algorithm``: the discount is its gamma.
        index: uid of each row; the rows of a prompt are a group.
        unused: verl passes more to some estimators.
    """
    estimator = get_estimator(ESTIMATORS[name])
    options = estimator_options(config, name)
    options["gamma"] = float(config.gamma) if config is not None else 1.0
    if "group_ids" in estimator.needs:
        if index is None:
            raise ConfigError(f"{name} compares the episodes of a prompt, but this trainer passes no uids")
        options["group_ids"] = list(index)
    facts = _facts.get()
    if facts is not None and facts.episodes is not None:
        assert facts.turns is not None
        options.update(episodes=facts.episodes, turns=facts.turns)
        result = by_episode(estimator.tensors(), token_level_rewards, response_mask, **options)
    else:
        turn_ids = facts.turn_ids if facts is not None else None
        result = estimator.tensors()(token_level_rewards, response_mask, turn_ids=turn_ids, **options)
    if facts is not None:
        facts.stats = result.stats
    _tell_once(name, result.stats, facts)
    return result.advantages, result.returns


_told: set[tuple[str, str]] = set()


def _tell_once(name: str, stats: ReturnStats, facts: BatchFacts | None) -> None:
    """Say once what the turns were taken from: with a wrong mask nothing else would show it."""
    if facts is None:
        where = "the runs of 1s in response_mask"
    else:
        where = "the turn ids of the agent loop" if facts.episodes is None else "rows of single turns"
    if (name, where) not in _told:
        _told.add((name, where))
        text = "%s: %d turns in this batch, taken from %s; their rewards are the sums of token_level_rewards"
        logger.info(text, name, int(stats.count), where)


for _name in ESTIMATORS:
    register_adv_est(_name)(functools.partial(estimate, _name))
