"""The tiny model for environments with images: a Qwen2-VL with random weights, and its processor."""

from __future__ import annotations

from typing import Any

from gem_chat._vision import Processor
from gem_core._images import require_pillow
from gem_lab._engines.loading import image_processor_class

IMAGE_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' }}"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'text' %}{{ part['text'] }}"
    "{% else %}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}{% endif %}"
    "{% endfor %}{% endif %}{{ '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
_MOST_PIXELS = 112 * 112
"""Maximum number of pixels of an image, above which it is scaled down: 16 tokens of 28 x 28 pixels."""


def make_processor(tokenizer: Any) -> Processor:
    """Add image tokens and a chat template with images to `tokenizer`, and return a processor for it.

    Raises:
        MissingDependency: Pillow is not installed.
    """
    require_pillow("a tiny model with images")
    known = [token for token in tokenizer.all_special_tokens if token not in IMAGE_TOKENS]
    tokenizer.add_special_tokens({"additional_special_tokens": [*known, *IMAGE_TOKENS]})
    tokenizer.chat_template = CHAT_TEMPLATE
    return Processor(tokenizer, image_processor_class()(min_pixels=28 * 28, max_pixels=_MOST_PIXELS))


def make_vision_model(tokenizer: Any, hidden_size: int, layers: int, max_positions: int) -> Any:
    """Return a `Qwen2VLForConditionalGeneration` with random weights.

    Args:
        tokenizer: Tokenizer to which `make_processor` has added image tokens.
        hidden_size: Width of the model, a multiple of 32.
        layers: Number of decoder layers; the vision encoder has one layer.
        max_positions: Longest context in tokens.
    """
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    heads = hidden_size // 32
    scale = hidden_size**-0.5  # see the text model in gem_lab.train._tiny
    start, end, image, video = tokenizer.convert_tokens_to_ids(list(IMAGE_TOKENS))
    config = Qwen2VLConfig(
        text_config={
            "vocab_size": (len(tokenizer) + 63) // 64 * 64,
            "hidden_size": hidden_size,
            "intermediate_size": 2 * hidden_size,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": heads,
            "max_position_embeddings": max_positions,
            "initializer_range": scale,
            "rope_scaling": {"type": "mrope", "mrope_section": [4, 6, 6]},
            "tie_word_embeddings": True,
            "bos_token_id": None,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
        },
        vision_config={
            "depth": 1,
            "embed_dim": hidden_size,
            "hidden_size": hidden_size,
            "num_heads": heads,
            "mlp_ratio": 2,
            "initializer_range": 0.6 * scale,  # so that common image features mask differences less
        },
        tie_word_embeddings=True,
        vision_start_token_id=start,
        vision_end_token_id=end,
        image_token_id=image,
        video_token_id=video,
    )
    return Qwen2VLForConditionalGeneration(config)
