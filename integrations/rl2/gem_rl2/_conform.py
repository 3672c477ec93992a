"""`gem-core conform --trainer rl2`: estimators of RL2, whose trajectories may have several rows."""

from __future__ import annotations

import io
import tempfile
from contextlib import redirect_stdout
from functools import partial

import torch
import torch.distributed as dist
import wandb
from omegaconf import OmegaConf

from gem_core.errors import ConfigError
from gem_core.trainers._imports import replaced
from gem_lab._conform import ExactRows, GradedEstimator
from gem_rl2._estimators import AdvantageHook
from gem_rl2._upstream import Upstream, find


def estimators() -> dict[str, GradedEstimator]:
    """Return RL2's estimator that compares the trajectories of a prompt, and gem-core's in its place."""
    upstream = find()
    own = partial(_compute, upstream, "reinforce", 1.0)
    return {"RL2 reinforce": GradedEstimator("group mean", own)} | {
        f"{name} in RL2": GradedEstimator(kind, partial(_compute, upstream, name, 1.0), True)
        for name, kind in (("gem_dr_grpo", "group mean"), ("gem_rloo", "leave one out"))
    }


def _compute(upstream: Upstream, name: str, gamma: float, rows: ExactRows) -> torch.Tensor:
    if len({*rows.group_sizes}) > 1:
        raise ConfigError("the groups of RL2 have one size, responses_per_prompt")
    bounds = [n for n, index in enumerate(rows.indices) if index == 0]
    adv = {
        "estimator": name, "gamma": gamma, "lamda": 1.0, "global_norm": False, "norm_var": False,
        "responses_per_prompt": max(rows.group_sizes),
    }  # fmt: skip
    config = OmegaConf.create(adv if upstream.is_index else {"adv": adv, "actor": {"kl": {"coef": 0.0}}})
    tensors = {
        "states": torch.zeros(rows.mask.shape, dtype=torch.long),
        "action_mask": rows.mask.long(),
        "eos_mask": torch.ones_like(rows.mask),
        "rewards": rows.rewards,
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        replaced(wandb, "log", lambda *_, **__: None),
        redirect_stdout(io.StringIO()),  # the metrics of each batch
    ):
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        try:
            compute = upstream.compute_advantages if name == "reinforce" else AdvantageHook(upstream)
            compute(config, tensors, torch.tensor([*bounds, len(rows.mask)]), 1)
        finally:
            dist.destroy_process_group()
    return tensors["advantages"]
