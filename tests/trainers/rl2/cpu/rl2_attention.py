"""Stub of ring_flash_attn, which needs CUDA: the same function of packed rows, on one rank."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import torch
import torch.distributed as dist

PACKED: dict[str, torch.Tensor] = {}
"""The row boundaries set by rl-square 0.0.2."""


def packed_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bounds: torch.Tensor, scale: float | None
) -> torch.Tensor:
    """Compute causal attention within each row; tensors are (tokens, heads, size)."""
    repeat = query.shape[1] // key.shape[1]
    key, value = (tensor.repeat_interleave(repeat, 1) for tensor in (key, value))
    ends = sorted({*bounds.tolist(), query.shape[0]})
    rows = []
    for start, end in itertools.pairwise(ends):
        q, k, v = (tensor[start:end].transpose(0, 1)[None] for tensor in (query, key, value))
        row = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
        rows.append(row[0].transpose(0, 1))
    return torch.cat(rows)


def zigzag_ring_flash_attn_varlen_func(
    query: Any, key: Any, value: Any, cu_seqlens: Any, max_seqlen: int, **options: Any
) -> torch.Tensor:
    assert dist.get_world_size(options.get("group")) == 1
    return packed_attention(query, key, value, cu_seqlens, options.get("softmax_scale"))


def llama3_flash_attn_prepare_cu_seqlens(bounds: torch.Tensor, causal: bool, rank: int, world: int) -> Any:
    assert world == 1
    PACKED["bounds"] = bounds
    longest = int((bounds[1:] - bounds[:-1]).max())
    return bounds, bounds, longest, longest, slice(None)


def llama3_flash_attn_varlen_func(query: Any, key: Any, value: Any, **options: Any) -> torch.Tensor:
    return packed_attention(query, key, value, options["cu_seqlens_q"], options.get("softmax_scale"))


def flash_attention_forward(
    module: Any, query: Any, key: Any, value: Any, mask: Any, scaling: float | None = None, **options: Any
) -> tuple[torch.Tensor, None]:
    """Act as the attention function of a transformers model; tensors are (1, heads, tokens, size)."""
    newer = sys.modules.get("RL2.utils.fsdp.context_parallelism")
    bounds = newer.DATA_PARAMS["cu_seqlens"] if newer else PACKED["bounds"]
    q, k, v = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    return packed_attention(q, k, v, bounds, scaling)[None], None


MODULES: dict[str, dict[str, Any]] = {
    "ring_flash_attn": {},
    "ring_flash_attn.zigzag_ring_flash_attn_varlen": {
        "zigzag_ring_flash_attn_varlen_func": zigzag_ring_flash_attn_varlen_func
    },
    "ring_flash_attn.llama3_flash_attn_varlen": {
        "llama3_flash_attn_varlen_func": llama3_flash_attn_varlen_func,
        "llama3_flash_attn_prepare_cu_seqlens": llama3_flash_attn_prepare_cu_seqlens,
    },
    "ring_flash_attn.adapters": {},
    "ring_flash_attn.adapters.hf_adapter": {"flash_attention_forward": flash_attention_forward},
}
