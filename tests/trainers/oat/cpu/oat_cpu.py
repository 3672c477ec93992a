"""Lets Oat run without a GPU; for tests. Loaded in every process by ``--modules oat_cpu``.

Oat asks torch.cuda for devices in many places. What is replaced here either has no meaning on a CPU or
is the CPU's counterpart: `FusedAdam` is a CUDA kernel of AdamW.
"""

from __future__ import annotations

import os
from typing import Any

import deepspeed.ops
import oat.learners.base
import oat.utils.deepspeed
import torch
import torch.distributed as dist

GPUS = int(os.environ.get("GEM_OAT_FAKE_GPUS", "1"))

torch.cuda.is_available = lambda: False
torch.cuda.device_count = lambda: GPUS
torch.cuda.current_device = lambda: torch.device("cpu")
torch.cuda.set_device = torch.cuda.synchronize = lambda *args, **kwargs: None
torch.cuda.empty_cache = lambda: None
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # would be compiled
oat.utils.deepspeed.FusedAdam = torch.optim.AdamW


def use_standin_engine() -> None:
    """Lead Oat's weight synchronisation to the engine of the same process."""
    import vllm

    def own_group(**kwargs: Any) -> Any:
        groups = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
        return groups[dist.get_rank()]

    oat.learners.base.init_process_group = own_group
    prepare = oat.utils.deepspeed.DeepspeedStrategy.prepare

    def prepare_and_show(self: Any, *models: Any) -> Any:
        prepared = prepare(self, *models)
        policy = prepared[0] if isinstance(prepared[0], tuple) else prepared
        vllm.LLM.weights = dict(policy[0].model.module.named_parameters())
        return prepared

    oat.utils.deepspeed.DeepspeedStrategy.prepare = prepare_and_show


if os.environ.get("GEM_OAT_STANDIN"):
    use_standin_engine()
