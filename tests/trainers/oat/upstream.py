"""Oat's own estimators as functions of a batch of `tests.trainers.upstream`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from oat.algorithms.ppo import PPOLearner
from oat.algorithms.ppo_multiturn import PPOMultiTurnLearner

from tests.trainers.upstream.batches import Batch
from tests.trainers.upstream.extract import extract


def _learner(kind: type, batch: Batch, **options: Any) -> Any:
    """Return a learner without models; the critic looks the values up in the batch."""
    learner = kind.__new__(kind)
    learner.args = SimpleNamespace(
        gamma=batch.gamma, lam=batch.lam, train_batch_size_per_device=batch.episodes, **options
    )
    learner.strategy = SimpleNamespace(all_reduce=lambda tensor, op: tensor)  # one rank
    return learner


def _critic(batch: Batch, whiten: bool) -> torch.Tensor:
    learner = _learner(PPOLearner, batch, whiten_adv=whiten)
    values = torch.tensor(np.pad(batch.values, ((0, 0), (0, 1))))
    learner.critic = lambda input_ids, attention_mask: values
    mask = torch.tensor(batch.mask)
    last = batch.mask.shape[1] - 1 - batch.mask[:, ::-1].argmax(1)
    attention = torch.tensor(np.arange(batch.mask.shape[1] + 1) <= last[:, None] + 1)
    input_ids = torch.zeros(attention.shape, dtype=torch.long)
    advantages, _, _ = learner.compute_ppo_advantages(
        torch.tensor(batch.token_rewards), input_ids, attention, mask
    )
    return advantages  # type: ignore[no-any-return]


def _monte_carlo(batch: Batch, critic_type: str) -> torch.Tensor:
    learner = _learner(PPOLearner, batch, critic_type=critic_type, num_samples=batch.group_size)
    mask = torch.tensor(batch.mask)
    advantages = learner.compute_monte_carlo_advantages(torch.tensor(batch.token_rewards), mask)
    return advantages[:, None] * mask  # type: ignore[no-any-return]


def _multi_turn(batch: Batch, critic: bool = False, whiten: bool = False) -> Any:
    learner = _learner(PPOMultiTurnLearner, batch, whiten_adv=whiten)
    learner.critic = object() if critic else None
    parts = []
    values = batch.split(batch.at_turns(batch.values)) if critic else batch.split(batch.rewards)
    for rewards, turn_values in zip(batch.split(batch.rewards), values, strict=True):
        dones = np.arange(len(rewards)) == len(rewards) - 1
        end = 1e9  # as in process_feedback_data
        advantages, _ = learner.compute_advantages(
            rewards, np.append(turn_values, end), dones.astype(float), batch.gamma, batch.lam
        )
        parts.append(advantages)
    scope = {"torch": torch, "self": learner, "advantages": torch.tensor(np.concatenate(parts))[:, None]}
    exec(extract(PPOMultiTurnLearner.learning_step, "if self.args.whiten_adv"), scope)
    return batch.spread(scope["advantages"][:, 0].numpy())


CALLS: dict[str, Callable[[Batch], Any]] = {
    "ppo, critic_type=ppo": partial(_critic, whiten=False),
    "ppo, critic_type=ppo, whiten_adv": partial(_critic, whiten=True),
    "ppo, critic_type=grpo": partial(_monte_carlo, critic_type="grpo"),
    "ppo, critic_type=drgrpo": partial(_monte_carlo, critic_type="drgrpo"),
    "ppo_multiturn": _multi_turn,
    "ppo_multiturn, whiten_adv": partial(_multi_turn, whiten=True),
    "ppo_multiturn, critic_type=ppo": partial(_multi_turn, critic=True),
}
"""By the name of the entry."""
