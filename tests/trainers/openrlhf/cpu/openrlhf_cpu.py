"""Lets OpenRLHF, DeepSpeed, and vLLM run on a CPU, for tests, where they ask for CUDA by name."""

from __future__ import annotations

import functools
from typing import Any

from gem_core.trainers import after_import


class Device(str):
    """OpenRLHF's current device: tensors are moved to it, and OpenRLHF formats it into ``cuda:0``."""

    def __new__(cls) -> Device:
        return super().__new__(cls, "cpu")

    def __format__(self, spec: str) -> str:
        return "0"


class Stream:
    """Stream of a device without streams."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


def cuda(module: Any) -> None:
    module.current_device = Device
    module.current_stream = Stream
    for name in ("set_device", "synchronize", "empty_cache"):  # torch.compile requires them to be distinct
        setattr(module, name, lambda *args, **kwargs: None)


def mesh(module: Any) -> None:
    init = module.init_device_mesh
    module.init_device_mesh = lambda kind, *args, **kwargs: init("cpu", *args, **kwargs)


class Broadcast:
    """Replaces vLLM's NCCL communicator over the same process group."""

    def __init__(self, group: Any) -> None:
        self.group = group

    def broadcast(self, tensor: Any, src: int, stream: Any = None) -> None:
        import torch

        if self.group.rank == src:
            self.group.broadcast_obj(tensor.detach().float().numpy(), src)
        else:
            tensor.copy_(torch.from_numpy(self.group.broadcast_obj(None, src)))


def weight_sync(module: Any) -> None:
    def stateless_init_process_group(host: str, port: int, rank: int, size: int, device: Any) -> Broadcast:
        from vllm.distributed.utils import StatelessProcessGroup

        return Broadcast(StatelessProcessGroup.create(host=host, port=port, rank=rank, world_size=size))

    module.stateless_init_process_group = stateless_init_process_group


def worker(module: Any) -> None:
    def update_weight(self: Any, name: str, dtype: Any, shape: Any, empty_cache: bool = False) -> None:
        import torch

        if dtype != self.model_config.dtype:
            raise TypeError(f"{name}: the trainer sends {dtype}, the engine holds {self.model_config.dtype}")
        weight = torch.empty(shape, dtype=dtype)  # OpenRLHF's own code uses "cuda"
        self._model_update_group.broadcast(weight, src=0)
        self.model_runner.model.load_weights([(name, weight)])

    module.WorkerWrap.update_weight = update_weight


def plain_weights(module: Any) -> None:
    """Keep plain weights, because vLLM packs linear weights for the CPU, which prevents reloading."""

    def plain(layer: Any, remove_weight: bool = False) -> None:
        import torch

        layer.cpu_linear = torch.nn.functional.linear

    module.dispatch_cpu_unquantized_gemm = plain


def without_dashboard(module: Any) -> None:
    """Start Ray without its dashboard, which may time out on a busy machine with two cores."""
    module.init = functools.partial(module.init, include_dashboard=False)


def adam(module: Any) -> None:
    """Use PyTorch's AdamW as a stand-in for DeepSpeed's, which would be compiled for two minutes."""
    import torch

    class FusedAdam(torch.optim.AdamW):
        def __init__(self, params: Any, *, adam_w_mode: bool, **options: Any) -> None:
            if not adam_w_mode:
                raise ValueError("this optimizer has decoupled weight decay only")
            super().__init__(params, **options)

    module.FusedAdam = FusedAdam


def without_shared_memory(module: Any) -> None:
    """Let DeepSpeed not compile its reduction over shared memory, which only its inference uses."""
    module.build_shm_op = lambda: None


def activate() -> None:
    changes = {
        "ray._private.worker": without_dashboard,
        "torch.cuda": cuda,
        "deepspeed.ops.adam": adam,
        "deepspeed.comm.torch": without_shared_memory,
        "openrlhf.utils.deepspeed.deepspeed": mesh,
        "openrlhf.utils.distributed_util": weight_sync,
        "openrlhf.trainer.ray.vllm_worker_wrap": worker,
        "vllm.model_executor.layers.utils": plain_weights,
    }
    for name, change in changes.items():
        after_import(name, change)
