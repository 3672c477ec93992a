"""``algorithm.adv_estimator=rebn`` and gem_core's other estimators, with the signature that verl expects.

They work on the rows of any agent loop: ``gem``, verl's single-turn and tool loops, or your own. A turn is a
run of 1s in the response mask, and its reward is the sum of the token-level rewards from its first token up
to the next turn, including a KL penalty in the reward.

GEM's trainer modes know more than verl passes to an estimator: which rows belong to one episode or to one
session of another agent loop, turn ids where two turns are adjacent, and the values of the critic. They
provide this information in `batch_facts` around the call.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

import numpy as np
import torch
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, register_adv_est
from verl.utils.torch_functional import masked_whiten

from gem_core.trainers import BatchFacts
from gem_core.trainers._estimators import TurnLog
from gem_verl._options import estimator_names, read_algorithm

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

    Like verl's own GAE, ``gem_gae`` whitens the advantages over the response tokens.

    Args:
        name: Key of `gem_verl._options.estimator_names`.
        token_level_rewards: Rewards of shape (rows, tokens).
        response_mask: Mask of shape (rows, tokens). A row of zeros, such as a padding row or a failed
            episode, is ignored.
        config: verl's section ``algorithm``.
        index: uid of each row; the rows of a prompt form a group.
        unused: Other arguments that verl passes to some estimators.
    """
    facts = batch_facts or BatchFacts()
    values: dict[str, Any] = {} if facts.values is None else {"values": facts.values}
    source = "the runs of 1s in response_mask" if facts.turn_ids is None else "the turn ids of the agent loop"
    source = source if facts.episodes is None else f"rows that share an episode, by {source}"
    choice = read_algorithm(config, name)
    result = choice.compute(
        token_level_rewards,
        response_mask,
        turn_ids=facts.turn_ids,
        episodes=facts.episodes,
        turns=facts.turns,
        group_ids=None if index is None else list(index),
        played=facts.played,
        **values,
    )
    facts.stats = result.stats
    _log_turns(name, result.stats, f"{source}; their rewards are the sums of token_level_rewards")
    if choice.estimator.name == "gae":
        return masked_whiten(result.advantages, response_mask) * response_mask, result.returns
    return result.advantages, result.returns


def register() -> None:
    """Register the estimators of gem_core in verl, unless verl has one of the name."""
    for name in estimator_names():
        if name not in ADV_ESTIMATOR_REGISTRY:
            register_adv_est(name)(functools.partial(estimate, name))


register()
