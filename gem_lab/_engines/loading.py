"""Functions that load a model and its tokenizer, and report each failure in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, AutoTokenizer

from gem_chat._files import read_text
from gem_chat._report import stand_in_tokenizer
from gem_chat._vision import Processor
from gem_chat._vision_model import forbid_placeholders, is_vision_language
from gem_core._images import require_pillow
from gem_core._util.checks import expected
from gem_core.errors import ConfigError, ModelError


def load_tokenizer(source: str) -> Any:
    """Load the tokenizer of a model.

    Args:
        source: Model folder, or name on the Hugging Face Hub.

    Raises:
        ModelError: The tokenizer cannot be loaded or has no end-of-sequence token.
    """
    _require_folder(source)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
    except Exception as error:  # the loaders of transformers raise many types
        raise ModelError(
            f"{source}: cannot load the tokenizer ({_first_line(error)}); a model folder needs the tokenizer "
            "files next to the weights"
        ) from error
    if tokenizer.eos_token_id is None:
        raise ModelError(f"{source}: the tokenizer has no end-of-sequence token, so no response would end")
    return tokenizer


def load_processor(source: str) -> Any:
    """Load the `Processor` of a vision-language model, or the tokenizer of any other model.

    Args:
        source: Model folder, or name on the Hugging Face Hub.

    Raises:
        ModelError: The tokenizer or image processor cannot be loaded, or the tokenizer has no end-of-sequence
            token.
        MissingDependency: Pillow is not installed.
    """
    tokenizer = load_tokenizer(source)
    try:
        if not is_vision_language(AutoConfig.from_pretrained(source)):
            return tokenizer
    except (OSError, ValueError):  # the folder holds a tokenizer only
        return tokenizer
    require_pillow(f"{source}, a vision-language model,")
    from transformers import AutoImageProcessor

    try:
        try:
            return Processor(tokenizer, AutoImageProcessor.from_pretrained(source))
        except ImportError:  # without torchvision, transformers 5.10 lacks the class
            return Processor(tokenizer, image_processor_class().from_pretrained(source))
    except Exception as error:
        raise ModelError(f"{source}: cannot load the image processor ({_first_line(error)})") from error


def image_processor_class() -> Any:
    """Return the image processor class of the Qwen2-VL family that works without torchvision."""
    import transformers

    # In transformers 4, the class with the plain name needs no torchvision.
    pillow = getattr(transformers, "Qwen2VLImageProcessorPil", None)
    return pillow or transformers.Qwen2VLImageProcessor


def load_model(source: str, device: torch.device, dtype: str, *, autocast: bool = False) -> Any:
    """Load a causal LM or vision-language model in evaluation mode.

    Args:
        source: Model folder, or name on the Hugging Face Hub.
        device: Device for the weights.
        dtype: Name of the torch dtype of the weights, such as "bfloat16".
        autocast: Whether each forward pass computes matrix products in bfloat16, as `torch.autocast` does.

    Raises:
        ModelError: The model cannot be loaded.
        ConfigError: The model is a vision-language model that is not of the Qwen2-VL family.
    """
    _require_folder(source)
    try:
        has_vision = is_vision_language(AutoConfig.from_pretrained(source))
        model: Any = (AutoModelForImageTextToText if has_vision else AutoModelForCausalLM).from_pretrained(
            source
        )
    except Exception as error:
        raise ModelError(f"{source}: cannot load the model ({_first_line(error)})") from error
    if has_vision:
        forbid_placeholders(model)
    if autocast:
        # One context per forward pass: a longer one would keep converted weights after an optimizer step.
        model.forward = torch.autocast(device.type, torch.bfloat16)(model.forward)
    return model.to(device=device, dtype=getattr(torch, dtype)).eval()


def context_limit(model: Any, requested: int | None = None) -> int | None:
    """Return the maximum number of tokens in an episode.

    Args:
        model: The model.
        requested: Requested maximum; None uses the context length of the model.

    Returns:
        The maximum; None if the config of the model states no context length.

    Raises:
        ConfigError: `requested` exceeds the context length of the model.
    """
    limit: int | None = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if requested is None:
        return limit
    if limit is not None and requested > limit:
        raise ConfigError(
            f"max_total_tokens={requested} exceeds the model's context of {limit} tokens; set at most {limit}"
        )
    return requested


def pick_device(name: str) -> torch.device:
    """Return the torch device with this name; "auto" means CUDA if available, else the CPU.

    Raises:
        ConfigError: There is no such device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise expected("device", name, "auto, cpu, or cuda[:N]") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"device {name!r} does not exist; number of CUDA devices: {torch.cuda.device_count()}"
        )
    return device


def _require_folder(source: str) -> None:
    """Reject a path that does not exist, instead of looking it up on the network."""
    path = Path(source)
    if not path.is_dir() and (path.is_absolute() or source.startswith((".", "~")) or source.count("/") > 1):
        raise ModelError(f"{source}: no such model folder")


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def load_template(source: str) -> Any:
    """Return a tokenizer with the template of a file, or the tokenizer of a model.

    Args:
        source: File with Jinja text, model folder, or name on the Hugging Face Hub.

    Raises:
        GemError: There is no such file or model, or the tokenizer has no chat template.
    """
    path = Path(source)
    if path.is_file():
        return stand_in_tokenizer(read_text(path))
    if path.suffix in (".jinja", ".jinja2", ".txt"):
        raise ConfigError(f"{source}: there is no such file")
    tokenizer = load_tokenizer(source)
    if tokenizer.chat_template is None:
        raise ConfigError(
            f"{source}: the tokenizer has no chat template, so prompts have the plain format (User: ...)"
        )
    return tokenizer
