"""Lets an unmodified RL2 train on a CPU, for tests: CUDA becomes the CPU, nccl becomes gloo.

Packages that need a GPU are replaced by stubs, and rl-square 0.0.2 computes in float32 instead of its
hard-coded bfloat16.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import sys
import types
from collections.abc import Iterator
from typing import Any

import rl2_attention
import rl2_sglang
import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecision, _flat_param, _init_utils


def install() -> None:
    """Install all stubs, before RL2 is imported."""
    for name, attributes in (rl2_sglang.MODULES | rl2_attention.MODULES).items():
        add_module(name, attributes)
    replace_cuda()
    replace_fsdp()
    import transformers.modeling_utils

    transformers.PreTrainedModel._flash_attn_2_can_dispatch = lambda *args, **kwargs: True
    transformers.modeling_utils.lazy_import_flash_attention = lambda *args, **kwargs: (None,) * 4


def add_module(name: str, attributes: dict[str, Any]) -> None:
    """Make a module without a file importable."""
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    module.__path__ = []
    module.__dict__.update(attributes)
    sys.modules[name] = module
    parent, _, own = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], own, module)


def replace_cuda() -> None:
    """Provide the functions of torch that RL2 calls by name."""
    cpu = torch.device("cpu")
    torch.cuda.current_device = lambda: cpu  # type: ignore[assignment,return-value]
    for name in ("set_device", "synchronize", "empty_cache"):
        setattr(torch.cuda, name, lambda *args, **kwargs: None)
    init_process_group, init_device_mesh = dist.init_process_group, dist.device_mesh.init_device_mesh

    def init_group(backend: str | None = None, *args: Any, **kwargs: Any) -> Any:
        return init_process_group("gloo" if backend == "nccl" else backend, *args, **kwargs)

    def init_mesh(device_type: str, *args: Any, **kwargs: Any) -> Any:
        return init_device_mesh("cpu" if device_type == "cuda" else device_type, *args, **kwargs)

    dist.init_process_group = init_group
    dist.device_mesh.init_device_mesh = init_mesh  # type: ignore[assignment]


def replace_fsdp() -> None:
    """Patch two checks of FSDP that fail on a CPU, and a copy that would free what it copied."""

    @contextlib.contextmanager
    def stay(self: Any) -> Iterator[None]:
        yield

    def in_float32(*args: Any, **kwargs: Any) -> MixedPrecision:
        return MixedPrecision(torch.float32, torch.float32, torch.float32)

    _init_utils._check_module_states_for_sync_module_states = lambda states: None
    _flat_param.FlatParamHandle.to_cpu = stay
    torch.distributed.fsdp.MixedPrecision = in_float32  # type: ignore[assignment,misc]
