"""Lets Oat run without a GPU, for tests; ``--modules oat_cpu`` loads it in every process.

Oat asks torch.cuda for devices in many places. The parts replaced here either have no meaning on a CPU or get
a counterpart on the CPU: `FusedAdam` is a CUDA kernel of AdamW.
"""

from __future__ import annotations

import os
from typing import Any

import deepspeed.ops
import oat.learners.base
import oat.utils.deepspeed
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _world

GPUS = int(os.environ.get("GEM_OAT_FAKE_GPUS", "1"))

torch.cuda.is_available = lambda: False
torch.cuda.device_count = lambda: GPUS
torch.cuda.current_device = lambda: torch.device("cpu")
torch.cuda.set_device = torch.cuda.synchronize = lambda *args, **kwargs: None
torch.cuda.empty_cache = lambda: None
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # otherwise DeepSpeed would compile it
oat.utils.deepspeed.FusedAdam = lambda groups, **options: torch.optim.AdamW(
    [group for group in groups if group["params"]],
    **options,  # DeepSpeed drops an empty group, as with LoRA
)


def use_stub_engine() -> None:
    """Pass the weights that Oat broadcasts to the engine in the same process."""
    import vllm

    broadcast = dist.broadcast
    actors: list[Any] = []

    def own_group(**kwargs: Any) -> Any:
        groups = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
        mine = groups[dist.get_rank()]
        _world.pg_group_ranks[mine] = {0: 0}  # as Oat does: the learner is number 0 among its actors
        actors.append(mine)
        return mine

    def received(tensor: torch.Tensor, src: int | None = None, group: Any = None, **options: Any) -> Any:
        if group in actors:
            vllm.LLM.receive(tensor)
        return broadcast(tensor, src, group, **options)

    oat.learners.base.init_process_group = own_group
    dist.broadcast = received


def receive_on_the_cpu() -> None:
    """Receive weights on the CPU; Oat's extension of vLLM's worker expects a GPU."""
    from oat.utils.distributed import WorkerWrap, torch_type_codec

    def update_weight(self: Any, name: str, dtype: str, shape: Any, *unused: Any) -> None:
        weight = torch.empty(shape, dtype=torch_type_codec(dtype))
        dist.broadcast(weight, 0, group=self._model_update_group)
        self.model_runner.model.load_weights(weights=[(name, weight)])

    WorkerWrap.update_weight = update_weight


if os.environ.get("GEM_OAT_STUB"):
    use_stub_engine()
else:
    receive_on_the_cpu()
