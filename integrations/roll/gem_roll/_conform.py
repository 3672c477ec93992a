"""`gem-core conform --trainer roll`: estimators of ROLL's agentic pipeline."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from gem_core.rollout._rows import RowSplit
from gem_core.trainers._imports import replaced
from gem_lab._conform import ExactRows, GradedEstimator, estimators_of_plugin
from gem_roll import _SUPPORTED
from gem_roll._options import GemOptions

_SUPPORTED.import_checkout_first()
from roll.distributed.scheduler.protocol import DataProto  # noqa: E402
from roll.pipeline.agentic import agentic_config, utils  # noqa: E402
from roll.utils.functionals import expand_to_token_level  # noqa: E402

from gem_roll._advantages import compute_advantages  # noqa: E402
from gem_roll._failures import played_only  # noqa: E402
from gem_roll._pipeline import ADVANTAGES, RETURNS, use_advantages, weigh_rows  # noqa: E402
from gem_roll._rows import pack_episode  # noqa: E402


def estimators() -> dict[str, GradedEstimator]:
    """Return ROLL's estimators that subtract means, and gem-core's in their place."""
    name = "ROLL step_reinforce, without std"
    return {
        "ROLL grpo, without std": GradedEstimator("group mean", _grpo),
        name: GradedEstimator("mean of turns, gamma=1", partial(_step_reinforce, 1.0)),
        f"{name}, gamma=1/2": GradedEstimator("mean of turns, gamma=1/2", partial(_step_reinforce, 0.5)),
    } | estimators_of_plugin("ROLL", _ours)


def _grpo(rows: ExactRows) -> torch.Tensor:
    data = DataProto.concat(_pack(rows, "auto"))
    return _theirs(data, "grpo", grouping="traj_group_id", norm_mean_type="group")


def _step_reinforce(gamma: float, rows: ExactRows) -> torch.Tensor:
    packed = _pack(rows, "turn")  # as ROLL's own env managers
    data = DataProto.concat(packed)
    advantages = _theirs(data, "step_reinforce", gamma, grouping="batch", norm_mean_type="batch")
    lengths = data.batch["response_mask"].sum(1).clamp(min=1)
    by_episode = (advantages.sum(1) / lengths).split([len(part) for part in packed])
    return rows.spread([turns.tolist() for turns in by_episode])


def _theirs(data: Any, name: str, gamma: float = 1.0, **normalization: str) -> torch.Tensor:
    """Return the advantages of a batch as ROLL's pipeline computes them; `gamma` discounts turns."""
    with replaced(agentic_config.logger, "disabled", True):
        norm = agentic_config.RewardNormalizationConfig(**normalization)
    config = SimpleNamespace(adv_estimator=name, reward_normalization=norm, reward_clip=None)
    data = utils.compute_discounted_returns(data, name, gamma)
    data, _ = utils.compute_response_level_rewards(data, config)
    data.batch["token_level_rewards"] = expand_to_token_level(data)
    data = utils.agentic_compute_advantage(data, 1.0, 1.0, name, pipeline_config=config)
    advantages: torch.Tensor = data.batch["advantages"]
    return advantages


def _ours(name: str, gamma: float, rows: ExactRows) -> torch.Tensor:
    choice = GemOptions(estimator=name).choose_estimator(SimpleNamespace(gamma=gamma))
    data = DataProto.concat(played_only(_pack(rows, "auto"), True, "batch"))
    result = compute_advantages(data, choice)
    data.batch[ADVANTAGES], data.batch[RETURNS] = result.advantages, result.returns
    weigh_rows(data, "token-mean")
    use_advantages(data, None)
    advantages = torch.zeros(rows.mask.shape)
    advantages[[bool(turns) for turns in rows.turns]] = data.batch["advantages"].float()
    return advantages


def _pack(rows: ExactRows, split: RowSplit) -> list[Any]:
    """Return the rows of each episode, with one token before the rows of the batch."""
    options: Any = {"length": 1 + rows.mask.shape[1], "pad_id": 0, "with_logprobs": False}
    packed = []
    for number, episode in enumerate(rows.played):
        group = episode.metadata["group"]
        fields = {"traj_id": f"{group}_{number}", "traj_group_id": group, "tags": "conform"}
        packed.append(pack_episode(episode, several=True, split=split, fields=fields, **options))
    return packed
