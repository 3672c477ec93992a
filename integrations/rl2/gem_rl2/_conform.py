"""`gem-core conform --trainer rl2`: estimators of RL2, whose trajectories may have several rows."""

from __future__ import annotations

import io
import tempfile
from contextlib import redirect_stdout
from functools import partial
from itertools import accumulate, pairwise

import torch
import torch.distributed as dist
import wandb
from omegaconf import OmegaConf

from gem_core.errors import ConfigError
from gem_core.trainers._imports import replaced
from gem_lab._conform import ExactRows, GradedEstimator, estimators_of_plugin
from gem_rl2._estimators import AdvantageHook
from gem_rl2._router import rows_in_order
from gem_rl2._upstream import Upstream, find


def estimators() -> dict[str, GradedEstimator]:
    """Return RL2's estimator that compares the trajectories of a prompt, and gem-core's in its place."""
    upstream = find()
    theirs = GradedEstimator("group mean", partial(_theirs, upstream))
    return {"RL2 reinforce": theirs} | estimators_of_plugin("RL2", partial(_ours, upstream))


def _theirs(upstream: Upstream, rows: ExactRows) -> torch.Tensor:
    bounds = [n for n, index in enumerate(rows.indices) if index == 0]
    return _compute(upstream, "reinforce", 1.0, rows, rows.mask, rows.rewards, [*bounds, len(rows.mask)])


def _ours(upstream: Upstream, name: str, gamma: float, rows: ExactRows) -> torch.Tensor:
    """Compute advantages on the rows of which gem_rl2 makes RL2's samples."""
    samples = [rows_in_order(episode, pad_id=1) for episode in rows.played]
    laid_out = [row for sample in samples for row in sample]
    width = max(map(len, laid_out))
    mask, rewards = (
        torch.tensor([[*row_values, *[0] * (width - len(row_values))] for row_values in values]).float()
        for values in ([row.response_mask for row in laid_out], [row.rewards for row in laid_out])
    )
    bounds = [*accumulate(map(len, samples), initial=0)]
    advantages = _compute(upstream, name, gamma, rows, mask, rewards, bounds)
    by_turn = []
    for sample, (first, _) in zip(samples, pairwise(bounds), strict=True):
        spans = [
            (turn, first + n, span)
            for n, row in enumerate(sample)
            for turn, span in zip(row.turns, row.spans, strict=True)
        ]
        by_turn.append([float(advantages[n, slice(*span)].mean()) for _, n, span in sorted(spans)])
    return rows.spread(by_turn)


def _compute(
    upstream: Upstream,
    name: str,
    gamma: float,
    rows: ExactRows,
    mask: torch.Tensor,
    rewards: torch.Tensor,
    bounds: list[int],
) -> torch.Tensor:
    if len({*rows.group_sizes}) > 1:
        raise ConfigError("the groups of RL2 have one size, responses_per_prompt")
    adv = {
        "estimator": name, "gamma": gamma, "lamda": 1.0, "global_norm": False, "norm_var": False,
        "responses_per_prompt": max(rows.group_sizes),
    }  # fmt: skip
    config = OmegaConf.create(adv if upstream.is_index else {"adv": adv, "actor": {"kl": {"coef": 0.0}}})
    tensors = {
        "states": torch.zeros(mask.shape, dtype=torch.long),
        "action_mask": mask.long(),
        "eos_mask": torch.ones_like(mask),
        "rewards": rewards,
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        replaced(wandb, "log", lambda *_, **__: None),
        redirect_stdout(io.StringIO()),  # the metrics of each batch
    ):
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        try:
            compute = upstream.compute_advantages if name == "reinforce" else AdvantageHook(upstream)
            compute(config, tensors, torch.tensor(bounds), 1)
        finally:
            dist.destroy_process_group()
    return tensors["advantages"]
