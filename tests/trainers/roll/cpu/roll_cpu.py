"""Makes ROLL's platform for CPUs usable and its requests independent of vLLM, for tests.

The modules with the classes in the YAML import it first, so that it is loaded in each of ROLL's processes.
Ray is configured with GPUs that do not exist.
"""

from __future__ import annotations

import types
import uuid
from typing import Any

import roll.utils.send_recv_utils as send_recv
import torch
from roll.pipeline.agentic.llm_proxy import register_llm_proxy
from roll.pipeline.agentic.llm_proxy.policy_proxy import PolicyProxy
from roll.platforms import current_platform
from roll.platforms.cpu import CpuPlatform
from roll.utils.functionals import gather_unpadded_input_ids


def install() -> None:
    assert isinstance(current_platform, CpuPlatform)
    for name in ("device_memory_used", "memory_allocated", "memory_reserved"):
        setattr(CpuPlatform, name, staticmethod(lambda *args: 0))
        setattr(CpuPlatform, f"max_{name}", staticmethod(lambda *args: 0))
    for name in (
        "empty_cache", "init", "ipc_collect", "reset_max_memory_allocated", "reset_max_memory_cached",
        "reset_peak_memory_stats",
    ):  # fmt: skip
        setattr(CpuPlatform, name, staticmethod(lambda *args: None))
    CpuPlatform.ray_device_key = "GPU"
    CpuPlatform.device_control_env_var = "CUDA_VISIBLE_DEVICES"
    CpuPlatform.ray_experimental_noset = "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"
    CpuPlatform.get_rng_state = staticmethod(torch.get_rng_state)
    CpuPlatform.set_rng_state = staticmethod(torch.set_rng_state)
    CpuPlatform.random = types.SimpleNamespace(
        get_rng_state_all=lambda: [torch.get_rng_state()],
        set_rng_state_all=lambda states: torch.set_rng_state(states[0]),
    )
    torch.multiprocessing.set_sharing_strategy("file_system")
    send_recv.monkey_patch_torch_reductions = lambda: None  # changes how CUDA tensors are pickled


@register_llm_proxy("cpu")
class CpuProxy(PolicyProxy):  # type: ignore[misc]
    """ROLL's proxy without the router's import of vLLM for each request."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.router_client._preprocess_generate = self.preprocess

    def preprocess(self, request: Any, request_id: str | None) -> tuple[dict[str, Any], str]:
        config = request.meta_info["generation_config"]
        (ids,) = gather_unpadded_input_ids(
            input_ids=request.batch["input_ids"], attention_mask=request.batch["attention_mask"]
        )
        client = self.router_client
        name = request_id or str(uuid.uuid4())
        params = {
            "max_tokens": config["max_new_tokens"],
            "temperature": config["temperature"],
            "stop_token_ids": [client.eos_token_id, client.pad_token_id],
        }
        return {"rid": name, "input_ids": ids, "sampling_params": params}, name


install()
