"""Lets verl run on a CPU, for tests: a platform in verl's own registry, and two patches.

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


if os.environ.get("VERL_PLATFORM") == "cpu":
    import verl.utils.distributed
    import verl.utils.fsdp_utils

    os.environ.setdefault("VERL_ENGINE_DEVICE", "cuda")  # the FSDP engine is registered under that name

    # verl asks for "cpu:gloo,cpu:gloo" here, which torch rejects.
    _initialize = verl.utils.distributed.initialize_global_process_group_ray
    verl.utils.distributed.initialize_global_process_group_ray = lambda timeout_second=None, backend=None: (
        _initialize(timeout_second=timeout_second, backend=backend or "cpu:gloo")
    )

    class OffloadWithoutPins(verl.utils.fsdp_utils.CPUOffloadPolicy):  # type: ignore[misc]
        """Pinned memory needs an accelerator."""

        def __init__(self, pin_memory: bool = False) -> None:
            super().__init__(pin_memory=False)

    verl.utils.fsdp_utils.CPUOffloadPolicy = OffloadWithoutPins
