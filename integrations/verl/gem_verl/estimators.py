"""``algorithm.adv_estimator=rebn`` and gem_core's other estimators, with verl's signature.

They work on the rows of any agent loop: ``gem``, verl's single-turn and tool loops, or your own. A turn is a
run of 1s in the response mask, and its reward is the sum of the token-level rewards from its first token up
to the next turn, including a KL penalty in the reward.

GEM's trainer modes know more than verl passes to an estimator: which rows are turns of one episode, and turn
ids where two turns are adjacent. They set both as `batch_facts` around the call.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

import numpy as np
import torch
from verl.trainer.ppo.core_algos import register_adv_est

from gem_core.advantages.registry import TRAINER_NAMES
from gem_core.trainers.estimators import TurnLog
from gem_core.trainers.facts import BatchFacts
from gem_verl.options import read_algorithm

_log_turns = TurnLog(logging.getLogger("verl.gem"))  # only verl's own loggers have a handler in its processes

batch_facts: BatchFacts | None = None
"""Facts about the rows of the batch, which GEM's trainer modes set around the call of an estimator."""


def estimate(
    name: str,
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    config: Any = None,
    index: np.ndarray[Any, Any] | None = None,
    **unused: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return advantages and returns of a batch, each (rows, tokens) float32.

    Args:
        name: Key of `TRAINER_NAMES`.
        token_level_rewards: Rewards of shape (rows, tokens).
        response_mask: Mask of shape (rows, tokens). A row of zeros, such as a pad or a failed episode, is
            ignored.
        config: verl's section ``algorithm``.
        index: uid of each row; the rows of a prompt form a group.
        unused: Other arguments that verl passes to some estimators.
    """
    facts = batch_facts or BatchFacts()
    source = "the runs of 1s in response_mask" if facts.turn_ids is None else "the turn ids of the agent loop"
    source = source if facts.episodes is None else "turn rows"
    result = read_algorithm(config, name).compute(
        token_level_rewards,
        response_mask,
        turn_ids=facts.turn_ids,
        episodes=facts.episodes,
        turns=facts.turns,
        group_ids=None if index is None else list(index),
    )
    facts.stats = result.stats
    _log_turns(name, result.stats, f"{source}; their rewards are the sums of token_level_rewards")
    return result.advantages, result.returns


for _name in TRAINER_NAMES:
    register_adv_est(_name)(functools.partial(estimate, _name))
