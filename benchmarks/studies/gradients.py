"""Noise in the gradient of a batch, for an estimator and a discount."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from gem_core.advantages import get_estimator
from gem_core.rollout import Episode
from gem_core.rollout._options import ContextKind
from gem_lab._engines.loading import load_model
from gem_lab.train import TrainConfig
from gem_lab.train._batches import policy_gradient
from gem_lab.train._rollouts import Rollouts, training_tasks
from gem_lab.train._trainer import Learner

BATCHES, GROUPS, GROUP_SIZE = 8, 4, 8
"""Number of batches, of groups in a batch, and of episodes in a group, which share a seed."""


def noise(folder: Path, options: Mapping[str, Any]) -> dict[str, float]:
    """Return the noise in the gradient of the model in a folder.

    Args:
        folder: Folder of the model.
        options: Options of the run, of which "env", "context", "estimator", and "gamma" determine the
            gradient.

    Returns:
        "noise": share of the squared norm of a batch's gradient that is noise, from 0 to about 1. With the
        gradients g of independent batches, it is 1 - mean(g_i * g_j) / mean(g_i * g_i) over i != j, because
        the noise of different batches is independent. The estimate can slightly exceed 1.
    """
    batches = _play(folder, options["env"][0], options.get("context", "append"))
    model = load_model(str(folder), torch.device("cpu"), "float32")
    gradients = [_gradient(model, episodes, options["estimator"], options["gamma"]) for episodes in batches]
    signal = fmean(float(one @ other) for one, other in combinations(gradients, 2))
    return {"noise": 1 - signal / fmean(float(one @ one) for one in gradients)}


def _gradient(model: Any, episodes: Sequence[Episode], estimator: str, gamma: float) -> torch.Tensor:
    function = get_estimator(estimator)
    groups = (
        {"group_ids": [episode.metadata["group"] for episode in episodes]}
        if "group_ids" in function.needs
        else {}
    )
    advantages = function([episode.rewards for episode in episodes], gamma=gamma, **groups)
    for episode, turn_advantages in zip(episodes, advantages, strict=True):
        for turn, advantage in zip(episode.turns, turn_advantages, strict=True):
            turn.advantage = float(advantage)
    return torch.cat([gradient.flatten() for gradient in policy_gradient(model, episodes).values()])


@lru_cache(maxsize=2)
def _play(folder: Path, env: str, context: ContextKind) -> list[list[Episode]]:
    """Return batches of episodes of the model in a folder."""
    size = GROUPS * GROUP_SIZE
    config = TrainConfig(
        model=str(folder),
        env=[env],
        context=context,
        group_size=GROUP_SIZE,
        episodes_per_step=BATCHES * size,
    )
    learner = Learner(config, str(folder), None)
    players = {"": (learner.policy("noise"), learner.context)}
    with closing(Rollouts(config, players, learner.max_total_tokens)) as rollouts:
        episodes = rollouts.play(training_tasks(config, step=1), players, name="noise")
    return [episodes[first : first + size] for first in range(0, len(episodes), size)]
