"""Noise in the gradient of a batch, for an estimator and a discount."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from gem_core.advantages.registry import get_estimator
from gem_core.engines.loading import load_model, load_tokenizer
from gem_core.engines.sampling import BatchingPolicy
from gem_core.rollout import AppendContext, Episode, EpisodeLimits, run_episode
from gem_core.rollout.concurrency import play_tasks
from gem_core.tasks import TRAIN_SEEDS, EnvChoice
from gem_core.train import TrainConfig
from gem_core.train.objective import policy_gradient

BATCHES, GROUPS, GROUP_SIZE = 4, 4, 8
"""Number of batches, of groups in a batch, and of episodes in a group, which share a seed."""


def noise(folder: Path, options: Mapping[str, Any]) -> dict[str, float]:
    """Return the noise in the gradient of the model in a folder.

    Args:
        folder: Folder of the model.
        options: Options of the run, of which "env", "estimator", and "gamma" determine the gradient.

    Returns:
        "noise": share of the squared norm of a batch's gradient that is noise, from 0 to about 1. With the
        gradients g of independent batches, it is 1 - mean(g_i * g_j) / mean(g_i * g_i) over i != j, because
        the noise of different batches is independent. The estimate can slightly exceed 1.
    """
    batches = _play(folder, options["env"][0])
    model = load_model(str(folder), torch.device("cpu"), "float32")
    gradients = [_gradient(model, episodes, options["estimator"], options["gamma"]) for episodes in batches]
    signal = fmean(float(one @ other) for one, other in combinations(gradients, 2))
    return {"noise": 1 - signal / fmean(float(one @ one) for one in gradients)}


def _gradient(model: Any, episodes: Sequence[Episode], estimator: str, gamma: float) -> torch.Tensor:
    function = get_estimator(estimator)
    groups = {"group_ids": [episode.seed for episode in episodes]} if "group_ids" in function.needs else {}
    advantages = function.reference()([episode.rewards for episode in episodes], gamma=gamma, **groups)
    for episode, of_turns in zip(episodes, advantages, strict=True):
        for turn, advantage in zip(episode.turns, of_turns, strict=True):
            turn.advantage = float(advantage)
    return torch.cat([gradient.flatten() for gradient in policy_gradient(model, episodes).values()])


@lru_cache(maxsize=2)
def _play(folder: Path, env: str) -> list[list[Episode]]:
    """Return batches of episodes of the model in a folder."""
    tokenizer = load_tokenizer(str(folder))
    policy = BatchingPolicy(
        load_model(str(folder), torch.device("cpu"), "float32"),
        eos_token_ids=[tokenizer.eos_token_id],
        pad_token_id=tokenizer.eos_token_id,
    )
    context, source = AppendContext(tokenizer), EnvChoice.parse(env)
    limits = EpisodeLimits(max_tokens_per_turn=TrainConfig.max_tokens_per_turn)

    async def play(number: int, seed: int) -> Episode:
        with source.make() as made:
            return await run_episode(made, policy, context, limits, seed=seed, request_id=str(number))

    seeds = [seed for seed in TRAIN_SEEDS[: BATCHES * GROUPS] for _ in range(GROUP_SIZE)]
    episodes = asyncio.run(play_tasks(seeds, play, at_once=len(seeds)))
    size = GROUPS * GROUP_SIZE
    return [episodes[first : first + size] for first in range(0, len(episodes), size)]
