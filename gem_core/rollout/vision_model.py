"""What a vision-language model of the Qwen2-VL kind is given beside token ids."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from gem_core.errors import ConfigError
from gem_core.rollout.vision import ImageProcessor

_PLACEHOLDERS = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
_NEVER = -1e9
"""A logit that no token is drawn with; finite, so that no entropy or divergence becomes NaN."""


def is_vision_language(config: Any) -> bool:
    """Whether the configuration is that of a vision-language model."""
    return hasattr(config, "vision_config")


def forbid_placeholders(model: Any) -> None:
    """Keep `model` from sampling a token that stands for an image which does not exist.

    The logits themselves are changed, so sampling, log-probs and gradients agree.

    Raises:
        ConfigError: The model is of another kind than Qwen2-VL.
    """
    if not hasattr(model.base_model, "get_rope_index"):
        raise ConfigError(
            f"{type(model).__name__} is no model of the Qwen2-VL kind; other vision-language models are not "
            "supported"
        )
    ids = [getattr(model.config, name, None) for name in _PLACEHOLDERS]
    forbidden = torch.tensor(sorted({token for token in ids if token is not None}))

    def hook(_: Any, inputs: Any, logits: torch.Tensor) -> torch.Tensor:
        return logits.index_fill(-1, forbidden.to(logits.device), _NEVER)

    model.get_output_embeddings().register_forward_hook(hook)


def image_inputs(
    model: Any,
    image_processor: ImageProcessor,
    token_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    images: Sequence[Sequence[str]],
) -> dict[str, torch.Tensor]:
    """The images of some rows and the positions of their tokens, on the model's device.

    Args:
        model: Of the Qwen2-VL kind.
        image_processor: Those of the context that made the tokens.
        token_ids: (rows, tokens), padded on either side.
        attention_mask: 1 on tokens, 0 on padding.
        images: Data URLs per row, at least one in all.

    Returns:
        ``pixel_values`` and ``image_grid_thw`` over all rows, and ``position_ids`` (3, rows, tokens).
    """
    found = [image_processor.features(url) for row in images for url in row]
    pixels = torch.from_numpy(np.concatenate([one["pixel_values"] for one in found]))
    grid = torch.from_numpy(np.concatenate([one["image_grid_thw"] for one in found])).to(token_ids.device)
    index = model.base_model.get_rope_index
    options: dict[str, Any] = {"image_grid_thw": grid, "attention_mask": attention_mask}
    if "mm_token_type_ids" in inspect.signature(index).parameters:  # transformers 5
        options["mm_token_type_ids"] = (token_ids == image_processor.token_id).int()
    positions, _ = index(token_ids, **options)
    return {
        "pixel_values": pixels.to(token_ids.device),
        "image_grid_thw": grid,
        "position_ids": positions,
    }
