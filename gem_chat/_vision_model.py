"""Image inputs for vision-language models of the Qwen2-VL family."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch

from gem_chat._vision import ImageProcessor
from gem_core.errors import ConfigError

_PLACEHOLDERS = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
_NEVER = -1e9
"""Logit of a token that is never sampled; finite, so that no entropy or divergence becomes NaN."""


def is_vision_language(config: Any) -> bool:
    """Return whether a model config belongs to a vision-language model."""
    return hasattr(config, "vision_config")


def forbid_placeholders(model: Any) -> None:
    """Keep `model` from sampling image placeholders, for which there would be no image.

    A forward hook changes the logits themselves, so sampling, log-probs, and gradients agree.

    Raises:
        ConfigError: The model is not of the Qwen2-VL family.
    """
    if not hasattr(model.base_model, "get_rope_index"):
        raise ConfigError(
            f"{type(model).__name__} is not a model of the Qwen2-VL family; other vision-language models are "
            "not supported"
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
    """Return the image inputs of a batch and the positions of its tokens, on the device of `token_ids`.

    Args:
        model: A model of the Qwen2-VL family.
        image_processor: Image processor of the context that produced the tokens.
        token_ids: (rows, tokens), padded on either side.
        attention_mask: (rows, tokens): 1 on tokens, 0 on padding.
        images: Data URLs of the images in each row; at least one row has an image.

    Returns:
        ``pixel_values`` and ``image_grid_thw`` over all rows, and ``position_ids`` (3, rows, tokens).
    """
    features = image_processor.features_of(url for row in images for url in row)
    pixels = torch.from_numpy(features["pixel_values"])
    grid = torch.from_numpy(features["image_grid_thw"]).to(token_ids.device)
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
