"""OpenRLHF's own baselines over the samples whose environment did not fail.

OpenRLHF expects `n_samples_per_prompt` rewards for each prompt. A failed episode has none. Counted as a
reward of 0, it would change the advantages of the other samples of its prompt.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from openrlhf.trainer.ppo_utils.length_penalty import apply_length_penalties

WITHOUT_BASELINE = {
    "gae": "gae",
    "reinforce": "reinforce",
    "reinforce_baseline": "reinforce",
    "rloo": "",
    "group_norm": "",
    "dr_grpo": "",
    "flash_reinforce": "",
}
"""OpenRLHF's estimators, each with the estimator that does the same without subtracting a baseline. OpenRLHF
whitens the advantages of the first three."""


def advantages_of_samples(name: str, rewards: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    """Return the advantages that OpenRLHF computes from the rewards of each prompt, over the valid samples.

    Args:
        name: Key of `WITHOUT_BASELINE`.
        rewards: Rewards, float of shape (prompts, samples).
        valid: Whether the environment of a sample did not fail, bool of the same shape.

    Returns:
        Advantages, float of shape (prompts, samples); 0 for an invalid sample and for the only valid sample
        of a prompt.
    """
    rewards = rewards * valid
    if name == WITHOUT_BASELINE[name]:
        return rewards
    if name == "flash_reinforce":
        return (rewards - rewards.sum() / valid.sum().clamp(min=1)) * valid
    count = valid.sum(-1, keepdim=True)
    total = rewards.sum(-1, keepdim=True)
    if name == "rloo":
        others = (total - rewards) / (count - 1).clamp(min=1)
        return (rewards - others) * valid * (count > 1)
    centered = (rewards - total / count.clamp(min=1)) * valid
    if name == "group_norm":
        return centered / (_std(centered, count) + 1e-9)
    return centered


def _std(centered: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """Return the standard deviation of the valid samples, (prompts, 1); 0 for fewer than two."""
    return (centered.square().sum(-1, keepdim=True) / (count - 1).clamp(min=1)).sqrt()


@contextlib.contextmanager
def failures_left_out(args: Any, experiences: list[Any], valid: torch.Tensor) -> Iterator[None]:
    """Make OpenRLHF's `compute_advantages_and_returns` take its baselines over the valid samples.

    Inside this block the rewards have the baseline subtracted already, and the estimator is one that
    subtracts none. OpenRLHF applies its length penalties before the baseline, so they are applied here too.

    Args:
        args: OpenRLHF's flags; the estimator is a key of `WITHOUT_BASELINE`.
        experiences: Micro-batches of the whole batch.
        valid: Whether each row is valid, bool of shape (rows,), in the order of `experiences`.
    """
    name, samples = args.algo.advantage.estimator, args.rollout.n_samples_per_prompt
    flags = {
        key: getattr(args.reward, key, None) for key in ("overlong_buffer_len", "stop_properly_penalty_coef")
    }
    for experience in experiences:
        experience.rewards = experience.rewards.float()
    apply_length_penalties(experiences, args)
    penalized = [experience.rewards for experience in experiences]
    logged = [experience.info["reward"] for experience in experiences]
    index = torch.tensor([number for experience in experiences for number in experience.index])
    order = index.argsort()  # makes the samples of a prompt adjacent
    rewards, of_samples = (part[order].view(-1, samples) for part in (torch.cat(penalized), valid))
    shaped = advantages_of_samples(name, rewards, of_samples)
    sizes = [len(part) for part in penalized]
    for experience, part in zip(experiences, _back(shaped, order).split(sizes), strict=True):
        experience.rewards = part
    args.algo.advantage.estimator = WITHOUT_BASELINE[name]
    for key in flags:
        setattr(args.reward, key, None)
    try:
        yield
    finally:
        args.algo.advantage.estimator = name
        for key, value in flags.items():
            setattr(args.reward, key, value)
    count = of_samples.sum(-1, keepdim=True)
    centered = advantages_of_samples("dr_grpo", rewards, of_samples)
    spread = _back(_std(centered, count).expand(-1, samples), order).split(sizes)
    for experience, own, reward, std in zip(experiences, penalized, logged, spread, strict=True):
        experience.rewards, experience.info["reward"] = own, reward
        if samples > 1:
            experience.info["group_reward_std"] = std


def _back(values: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """Return values of samples, (rows,), in the order of their rows."""
    result = torch.empty(len(order), dtype=values.dtype)
    result[order] = values.reshape(-1)
    return result
