"""OpenRLHF's own baselines over the samples whose environment did not fail."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from openrlhf.trainer.ppo_utils import experience_maker

from gem_core.trainers import expect
from gem_core.trainers._baselines import subtract_baselines
from gem_core.trainers._imports import replaced
from gem_openrlhf import _SUPPORTED

PENALTIES = "apply_length_penalties"
"""Function that OpenRLHF calls right before it subtracts its baselines."""

WITHOUT_BASELINE = {
    **dict.fromkeys(("reinforce", "reinforce_baseline"), "reinforce"),
    **dict.fromkeys(("rloo", "group_norm", "dr_grpo", "flash_reinforce"), ""),
}
"""Maps OpenRLHF's estimators to equivalents that subtract no baseline. OpenRLHF whitens the advantages of the
first three."""

expect(_SUPPORTED, experience_maker, PENALTIES, "experiences", "args")


@contextlib.contextmanager
def failures_left_out(args: Any, experiences: list[Any], valid: torch.Tensor) -> Iterator[None]:
    """Make OpenRLHF's `compute_advantages_and_returns` compute its baselines over the valid samples.

    Inside this block, OpenRLHF uses an estimator that subtracts no baseline; the baseline is subtracted from
    the rewards right after the length penalties. If all samples are valid, nothing changes.

    Args:
        args: OpenRLHF's flags. Estimators that `WITHOUT_BASELINE` lacks are left unchanged.
        experiences: Micro-batches of the whole batch.
        valid: Whether each row is valid, bool of shape (rows,), in the order of `experiences`.
    """
    name, samples = args.algo.advantage.estimator, args.rollout.n_samples_per_prompt
    if valid.all() or name not in WITHOUT_BASELINE:
        yield
        return
    order = torch.tensor([number for experience in experiences for number in experience.index]).argsort()
    penalize = getattr(experience_maker, PENALTIES)
    rewards: list[torch.Tensor] = []
    spreads: list[torch.Tensor] = []

    def in_rows(values: torch.Tensor) -> Iterable[torch.Tensor]:
        """Return values of shape (prompts, samples) for each micro-batch."""
        return torch.split(values.reshape(-1)[order.argsort()], [len(part) for part in rewards])

    def penalize_and_subtract(experiences: list[Any], args: Any) -> None:
        penalize(experiences, args)
        rewards.extend(experience.rewards.float() for experience in experiences)
        scores, counted = (part[order].view(-1, samples) for part in (torch.cat(rewards), valid))
        values, std = subtract_baselines(scores, counted, leave_one_out=name == "rloo")
        if name == "reinforce":
            values = scores * counted
        elif name == "group_norm":
            values = values / (std + 1e-9)
        elif name == "flash_reinforce":
            values, _ = subtract_baselines(scores.view(1, -1), counted.view(1, -1))
        for experience, part in zip(experiences, in_rows(values), strict=True):
            experience.rewards = part
        spreads.extend(in_rows(std.expand(-1, samples)))

    with (
        replaced(args.algo.advantage, "estimator", WITHOUT_BASELINE[name]),
        replaced(experience_maker, PENALTIES, penalize_and_subtract),
    ):
        yield
    for experience, reward, spread in zip(experiences, rewards, spreads, strict=True):
        experience.rewards = reward
        if samples > 1:
            experience.info["group_reward_std"] = spread
