"""Images as tokens, with a processor of the Qwen2-VL family.

Such a processor consists of a tokenizer, an image processor, and a chat template that writes one placeholder
per image. The placeholder is then repeated once per merged patch (two by two patches), so the text of a
prompt and the sizes of its images determine its tokens. The pixels are passed separately.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from gem_chat._chat_templates import templates_of
from gem_chat._template import chat_renderer
from gem_core import Observation
from gem_core._images import open_image
from gem_core._observations import observation_text
from gem_core._util.messages import error_line
from gem_core.errors import ConfigError, DataError, UnsupportedTemplate
from gem_core.images import image_urls

Parts: TypeAlias = tuple[tuple[str, str], ...]
"""Hashable content parts, in order: ("text", text) or ("image", data URL)."""
Content: TypeAlias = str | Parts

_MEDIA = ("image", "video", "audio")
_TOKEN_NAMES = [
    f"{kind}{part}_token"
    for kind in (*_MEDIA, "vision")
    for part in ("", "_start", "_end", "_bos", "_eos", "_break", "_sep")
]
"""Attributes of processors and tokenizers of transformers that hold placeholders."""
_QWEN_TOKENS = ("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
"""Placeholders of the Qwen2-VL family, whose processors do not name all of them."""
_KEPT_PIXELS = 64
_KEPT_SIZES = 65_536


@dataclass(frozen=True)
class Processor:
    """The parts of a processor, for use without the processor class of transformers.

    That class requires torchvision, which only videos need.
    """

    tokenizer: Any
    image_processor: Any
    chat_template: str | None = None
    """Jinja text of the chat template; None uses the tokenizer's own."""


class ImageProcessor:
    """Computes the tokens and model inputs of images. Thread-safe; all episodes of a run share one.

    Args:
        processor: A transformers processor of the Qwen2-VL family, or a `Processor`.

    Attributes:
        token: Text of the placeholder of an image.
        token_id: Its id.
        placeholders: Texts of the tokens that mark images, videos, and sounds, by id. They have a meaning
            only beside an image, so neither the model nor the texts of the environment may contain them.

    Raises:
        ConfigError: The processor is not of the Qwen2-VL family.
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
                f"{kind} is not an image processor of the Qwen2-VL family, with a grid of patches and the "
                f"placeholder {self.token!r}; other vision-language models are not supported"
            )
        self.placeholders = _placeholders(processor) | {self.token_id: self.token}
        self._merged = int(merge) ** 2
        self.features = lru_cache(_KEPT_PIXELS)(self._features)
        """Model inputs of one image: ``pixel_values`` (patches, width), ``image_grid_thw`` (1, 3)."""
        self.count = lru_cache(_KEPT_SIZES)(self._count)
        """Number of tokens of one image."""

    def features_of(self, urls: Iterable[str]) -> dict[str, Any]:
        """Return the model inputs of several images, each as in `features`, joined along the first axis."""
        parts = [self.features(url) for url in urls]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def expand(self, text: str, content: Content) -> str:
        """Return `text` with the placeholder of each image repeated once per token of the image.

        Args:
            text: Rendered text with one placeholder per image.
            content: Content that holds the images.

        Raises:
            DataError: An image cannot be read, or a text of the environment holds a placeholder.
        """
        parts = (("text", content),) if isinstance(content, str) else content
        for kind, value in parts:
            if kind == "text":
                self.check_text(value)
        pieces = text.split(self.token)
        urls = [value for kind, value in parts if kind == "image"]
        if len(pieces) != len(urls) + 1:
            raise DataError(
                f"a prompt with {len(urls)} images contains the placeholder {self.token!r} "
                f"{len(pieces) - 1} times"
            )
        counts = [self.count(url) for url in urls]
        return pieces[0] + "".join(
            self.token * count + piece for count, piece in zip(counts, pieces[1:], strict=True)
        )

    def check_text(self, text: str) -> None:
        """Require that a text holds no placeholder.

        Raises:
            DataError: It holds one.
        """
        for token in self.placeholders.values():
            if token in text:
                raise DataError(
                    f"a text contains the placeholder {token!r}, but no image belongs to it; texts of the "
                    "environment and the system prompt must not contain it"
                )

    def _features(self, url: str) -> dict[str, Any]:
        image = open_image(url)
        try:
            inputs = self._image_processor(images=[image], return_tensors="np")
            return {"pixel_values": inputs["pixel_values"], "image_grid_thw": inputs["image_grid_thw"]}
        except Exception as error:  # such as an image 200 times wider than high
            width, height = image.size
            reason = error_line(error)
            raise DataError(f"an image of {width}x{height} pixels cannot be processed ({reason})") from error

    def _count(self, url: str) -> int:
        return int(self.features(url)["image_grid_thw"].prod()) // self._merged


def _placeholders(processor: Any) -> dict[int, str]:
    """Return the tokens that mark media: those that a processor names, and those that its template writes."""
    tokenizer = processor.tokenizer
    named = {getattr(owner, name, None) for owner in (processor, tokenizer) for name in _TOKEN_NAMES}
    written: set[int] = set()
    before, after = ({"type": "text", "text": text} for text in ("neutral text", "another one"))
    templates = (templates_of(owner.chat_template).values() for owner in (processor, tokenizer))
    for template in itertools.chain(*templates):
        for kind in _MEDIA:
            message = {"role": "user", "content": [before, {"type": kind}, after]}
            try:
                text = chat_renderer(tokenizer, template)([message], generate=False)
            except UnsupportedTemplate:  # it shows no such media
                continue
            between = text.partition(before["text"])[2].partition(after["text"])[0]
            written |= {*tokenizer.encode(between, add_special_tokens=False)}
    added = {token_id: str(token) for token_id, token in tokenizer.added_tokens_decoder.items()}
    return {
        token_id: token
        for token_id, token in added.items()
        if token in named or token in _QWEN_TOKENS or token_id in written
    }


def is_processor(tokenizer_or_processor: Any) -> bool:
    """Return whether the argument is a processor rather than a tokenizer."""
    return hasattr(tokenizer_or_processor, "tokenizer") and hasattr(tokenizer_or_processor, "image_processor")


def processor_or_tokenizer(processor: Any, tokenizer: Any) -> Any:
    """Return the processor if it supports images as tokens, else the tokenizer, which suffices for text.

    Args:
        processor: The processor that a trainer loaded with the model; None if it has none.
        tokenizer: The tokenizer of the model.
    """
    if processor is None or not is_processor(processor):
        return tokenizer
    try:
        ImageProcessor(processor)
    except ConfigError:  # not of the Qwen2-VL family
        return tokenizer
    return processor


def processor_problem(model: str, load: Callable[[], Any]) -> str | None:
    """Return why a model cannot take images; None if its processor is of the Qwen2-VL family.

    Args:
        model: Name or folder of the model, for the reason.
        load: Function that returns the processor, or another object if the model has none.
    """
    try:
        processor = load()
    except (ImportError, OSError, ValueError) as error:
        return f"cannot load the processor of {model}: {error_line(error)}"
    if processor_or_tokenizer(processor, None) is None:
        return f"{model} has no processor of the Qwen2-VL family that loads here (it may need torchvision)"
    return None


def tokenizer_of(processor: Any) -> Any:
    """Return the tokenizer of a processor, or a tokenizer unchanged."""
    return processor.tokenizer if is_processor(processor) else processor


def content_of(observation: Observation) -> Content:
    """Return an observation in hashable form; adjacent texts are joined by a newline."""
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
    """Return the content of a message in the format of chat templates, without the data of the images."""
    if isinstance(content, str):
        return content
    return [
        {"type": "text", "text": value} if kind == "text" else {"type": "image"} for kind, value in content
    ]
