"""A trainer's own baselines, over the episodes whose environment did not fail.

A trainer expects the same number of rewards for each task. A failed episode has none, and a reward of 0 in
its place would change the advantages of the other episodes in its group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def subtract_baselines(
    rewards: torch.Tensor, valid: torch.Tensor, *, leave_one_out: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Subtract from each reward the mean reward of the valid episodes of its group.

    Args:
        rewards: Rewards, float of shape (groups, episodes). The values of invalid episodes are ignored.
        valid: Whether each episode counts, bool of the same shape.
        leave_one_out: Whether the mean leaves out the episode itself, as in RLOO.

    Returns:
        The differences, of shape (groups, episodes), 0 for an invalid episode and for the only valid one of a
        group; and the sample standard deviation of the valid rewards, of shape (groups, 1), 0 for fewer than
        two.
    """
    rewards = rewards.masked_fill(~valid, 0.0)
    count = valid.sum(-1, keepdim=True)
    others = (count - 1).clamp(min=1)
    centered = (rewards - rewards.sum(-1, keepdim=True) / count.clamp(min=1)).masked_fill(~valid, 0.0)
    std = (centered.square().sum(-1, keepdim=True) / others).sqrt()
    if leave_one_out:  # r - (S - r) / (n - 1) = n / (n - 1) * (r - S / n)
        return centered * count / others, std
    return centered, std
