"""Lets verl run on a CPU, for tests: a platform in verl's own registry, and three patches.

Loaded through VERL_USE_EXTERNAL_MODULES with VERL_PLATFORM=cpu.
"""

from __future__ import annotations

import contextlib
import os
import types
from collections.abc import Iterator
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

from gem_core.trainers import after_import


class Stream:
    """Stream or event of a device without streams."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


def _device_module() -> types.ModuleType:
    """Return a module with the functions of `torch.cuda` that verl uses."""
    module = types.ModuleType("verl_cpu_device")

    @contextlib.contextmanager
    def stream(*args: Any) -> Iterator[None]:
        yield

    constants = {
        "is_available": True, "device_count": 1, "current_device": 0, "get_device_name": "cpu",
        "memory_allocated": 0, "memory_reserved": 0, "max_memory_allocated": 0, "max_memory_reserved": 0,
        "mem_get_info": (8 << 30, 8 << 30), "set_device": None, "synchronize": None, "empty_cache": None,
        "ipc_collect": None, "reset_peak_memory_stats": None, "set_per_process_memory_fraction": None,
    }  # fmt: skip
    for name, value in constants.items():
        setattr(module, name, lambda *args, _value=value, **kwargs: _value)
    module.__dict__.update(
        Stream=Stream, Event=Stream, stream=stream, current_stream=lambda *args: Stream(),
        manual_seed=torch.manual_seed, manual_seed_all=torch.manual_seed,
        get_rng_state=lambda *args: torch.get_rng_state(),
        set_rng_state=lambda state, *args: torch.set_rng_state(state),
    )  # fmt: skip
    return module


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    device_name = vendor_name = "cpu"
    device_module = _device_module()

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return os.environ.get("VERL_PLATFORM") == "cpu"

    def current_device(self) -> str:
        return "cpu"  # verl moves tensors to it

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None: ...

    def synchronize(self, device_index: int | None = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        return "GPU"  # a resource declared in ray.init, not a device

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None: ...


def _load_critics_without_flash_attention(module: types.ModuleType) -> None:
    """Load critics with the attention of the CPU runs; verl hard-codes flash attention for them."""

    def load(local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
        from transformers import AutoModelForTokenClassification

        return AutoModelForTokenClassification.from_pretrained(
            local_path, dtype=torch_dtype, config=model_config, attn_implementation="eager"
        )

    module.load_valuehead_model = load


def _name_the_backend(module: types.ModuleType) -> None:
    """Replace "cpu:gloo,cpu:gloo", which verl asks for on this platform and torch rejects."""
    initialize = module.initialize_global_process_group_ray

    def with_backend(timeout_second: Any = None, backend: str | None = None) -> None:
        initialize(timeout_second=timeout_second, backend=backend or "cpu:gloo")

    module.initialize_global_process_group_ray = with_backend  # type: ignore[attr-defined]


def _offload_without_pins(module: types.ModuleType) -> None:
    """Turn off pinned memory, which needs an accelerator."""
    policy = module.CPUOffloadPolicy
    module.CPUOffloadPolicy = lambda pin_memory: policy(pin_memory=False)  # type: ignore[attr-defined]


if os.environ.get("VERL_PLATFORM") == "cpu":
    os.environ.setdefault("VERL_ENGINE_DEVICE", "cuda")  # the FSDP engine is registered under that name
    # After their imports, because most processes of a run need neither module, nor the libraries they import.
    after_import("verl.utils.distributed", _name_the_backend)
    after_import("verl.utils.model", _load_critics_without_flash_attention)
    after_import("verl.utils.fsdp_utils", _offload_without_pins)
