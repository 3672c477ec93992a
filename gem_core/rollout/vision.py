"""Images as tokens, with a processor of the Qwen2-VL kind.

Such a processor is a tokenizer, an image processor and a chat template that writes one placeholder for
each image. The placeholder is repeated as often as the image has patches (merged two by two), so the
tokens of a prompt follow from its text and the sizes of its images, and the pixels travel beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from gem_core._util.messages import error_line
from gem_core.core import Observation
from gem_core.errors import ConfigError, DataError
from gem_core.images import image_urls, open_image
from gem_core.observations import observation_text

Parts: TypeAlias = tuple[tuple[str, str], ...]
"""Content parts that can be remembered: ("text", text) and ("image", data URL) in order."""
Content: TypeAlias = str | Parts

_KEPT_PIXELS = 64
_KEPT_SIZES = 65_536


@dataclass(frozen=True)
class Processor:
    """The parts of a processor, for a model folder that transformers cannot load one from.

    transformers' own class needs torchvision for the sake of videos.
    """

    tokenizer: Any
    image_processor: Any
    chat_template: str | None = None
    """None takes the tokenizer's."""


class ImageProcessor:
    """Makes tokens and model inputs of images; one for all episodes of a run, for any thread.

    Args:
        processor: A transformers processor of the Qwen2-VL family, or a `Processor`.

    Raises:
        ConfigError: It is of another kind.
    """

    def __init__(self, processor: Any) -> None:
        tokenizer, self._image_processor = processor.tokenizer, processor.image_processor
        self.token = str(
            getattr(processor, "image_token", None)
            or getattr(tokenizer, "image_token", None)
            or "<|image_pad|>"
        )
        self.token_id: int = tokenizer.convert_tokens_to_ids(self.token)
        kind = type(self._image_processor).__name__
        merge = getattr(self._image_processor, "merge_size", None)
        if merge is None or tokenizer.encode(self.token, add_special_tokens=False) != [self.token_id]:
            raise ConfigError(
                f"{kind} is no image processor of the Qwen2-VL kind, with a grid of patches and the "
                f"placeholder {self.token!r}; other vision-language models are not supported"
            )
        self._merged = int(merge) ** 2
        self.features = lru_cache(_KEPT_PIXELS)(self._features)
        """Model inputs of one image: ``pixel_values`` (patches, width), ``image_grid_thw`` (1, 3)."""
        self.count = lru_cache(_KEPT_SIZES)(self._count)
        """Number of tokens of one image."""

    def expand(self, text: str, content: Content) -> str:
        """`text` with the placeholder of each image in `content` as often as it has tokens.

        Raises:
            DataError: An image cannot be read, or a text of the environment holds the placeholder.
        """
        pieces = text.split(self.token)
        urls = [] if isinstance(content, str) else [value for kind, value in content if kind == "image"]
        if len(pieces) != len(urls) + 1:
            raise DataError(
                f"a prompt with {len(urls)} images has {len(pieces) - 1} times the placeholder "
                f"{self.token!r}; a text of the environment must not hold it"
            )
        counts = [self.count(url) for url in urls]
        return pieces[0] + "".join(
            self.token * count + piece for count, piece in zip(counts, pieces[1:], strict=True)
        )

    def _features(self, url: str) -> dict[str, Any]:
        image = open_image(url)
        try:
            found = self._image_processor(images=[image], return_tensors="np")
            return {"pixel_values": found["pixel_values"], "image_grid_thw": found["image_grid_thw"]}
        except Exception as error:  # such as an image that is 200 times as wide as high
            width, height = image.size
            reason = error_line(error)
            raise DataError(f"an image of {width}x{height} pixels cannot be shown ({reason})") from error

    def _count(self, url: str) -> int:
        return int(self.features(url)["image_grid_thw"].prod()) // self._merged


def is_processor(given: Any) -> bool:
    """Whether this is a processor and not a tokenizer."""
    return hasattr(given, "tokenizer") and hasattr(given, "image_processor")


def processor_or_tokenizer(processor: Any, tokenizer: Any) -> Any:
    """The processor where images can be made tokens with it, else the tokenizer: for text it is enough.

    Args:
        processor: What a trainer has loaded with the model; None where there is none.
        tokenizer: The model's.
    """
    if processor is None or not is_processor(processor):
        return tokenizer
    try:
        ImageProcessor(processor)
    except ConfigError:  # of another kind
        return tokenizer
    return processor


def tokenizer_of(given: Any) -> Any:
    """The tokenizer of a processor; a tokenizer itself."""
    return given.tokenizer if is_processor(given) else given


def content_of(observation: Observation) -> Content:
    """An observation as something that can be remembered; text that follows text becomes one, as lines."""
    if not image_urls(observation) or isinstance(observation, str):
        return observation_text(observation)
    parts: list[tuple[str, str]] = []
    for part in observation:
        if part["type"] == "image_url":
            parts.append(("image", part["image_url"]["url"]))
        elif parts and parts[-1][0] == "text":
            parts[-1] = ("text", f"{parts[-1][1]}\n{part['text']}")
        else:
            parts.append(("text", part["text"]))
    return tuple(parts)


def for_template(content: Content) -> str | list[dict[str, str]]:
    """The content of a message as chat templates take it, without the data of the images."""
    if isinstance(content, str):
        return content
    return [
        {"type": "text", "text": value} if kind == "text" else {"type": "image"} for kind, value in content
    ]
