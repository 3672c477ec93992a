"""OpenRLHF's own estimators as functions of a batch of `tests.trainers.upstream`."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import torch
from openrlhf.trainer.ppo_utils.experience import Experience
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker
from openrlhf.trainer.ppo_utils.kl_controller import FixedKLController

from tests.trainers.upstream.batches import Batch
from tests.trainers.upstream.entries import entries


def _call(name: str, batch: Batch) -> torch.Tensor:
    advantage = SimpleNamespace(estimator=name, gamma=batch.gamma, lambd=batch.lam, no_std_norm=False)
    args = SimpleNamespace(
        algo=SimpleNamespace(advantage=advantage),
        rollout=SimpleNamespace(n_samples_per_prompt=batch.group_size),
        reward=SimpleNamespace(clip_range=None),
    )
    maker = RemoteExperienceMaker(
        None, None, None, None, FixedKLController(0.0), SimpleNamespace(args=args), None
    )
    mask = torch.tensor(batch.mask)
    experience = Experience(
        index=list(range(batch.episodes)),
        rewards=torch.tensor(batch.scores),
        action_mask=mask,
        kl=torch.zeros(mask.shape, dtype=torch.float64),
        values=torch.tensor(batch.values) if batch.values.size else None,
        info={},
    )
    maker.compute_advantages_and_returns([experience])
    result: torch.Tensor = experience.advantages
    return result


CALLS = {entry.name: partial(_call, entry.name) for entry in entries("openrlhf")}
"""By the name of the entry."""
