"""Images in observations.

    observation = [image_part(png_bytes), text_part("How many sides does the figure have?")]

An observation is a ``str`` or, if it holds images, a list of content parts as in the OpenAI API. An image is
always the data itself (a ``data:`` URL), never an address, so a trace stays readable for years and no program
downloads anything. An observation without images stays a ``str``, without overhead.

This module imports the standard library only; `open_image` needs Pillow.
"""

from __future__ import annotations

import base64
import binascii
import io
from typing import TYPE_CHECKING, Any

from gem_core._util.forks import ForkSafeLock
from gem_core._util.messages import error_line
from gem_core.errors import DataError, MissingDependency

if TYPE_CHECKING:
    from PIL.Image import Image

    from gem_core._core import Observation

_MAGIC = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif", b"RIFF": "webp"}
_FORMATS = "png, jpeg, gif, or webp"
_DECODERS = ("PNG", "JPEG", "GIF", "WEBP")
MOST_PIXELS = 16 << 20
"""Maximum number of pixels of an image to decode, about 4,000 by 4,000."""
_MOST_KEPT = 64 << 20
"""Maximum size of the decoded images that are kept, in bytes."""
_opened: dict[str, Image] = {}
_lock = ForkSafeLock()


def text_part(text: str) -> dict[str, Any]:
    """Return a content part that holds a text."""
    return {"type": "text", "text": text}


def image_part(data: bytes) -> dict[str, Any]:
    """Return a content part that holds an image.

    Args:
        data: Bytes of a png, jpeg, gif, or webp file.

    Raises:
        DataError: The bytes are in none of these formats.
    """
    url = f"data:image/{image_format(data)};base64,{base64.b64encode(data).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def image_urls(observation: Observation) -> list[str]:
    """Return the images of an observation in order, as data URLs."""
    if isinstance(observation, str):
        return []
    return [part["image_url"]["url"] for part in observation if part.get("type") == "image_url"]


def image_bytes(url: str) -> bytes:
    """Return the bytes of the image file in a data URL.

    Raises:
        DataError: The URL is an address, or its data is damaged or not an image.
    """
    head, comma, body = url.partition(",")
    if not (head.startswith("data:image/") and head.endswith(";base64") and comma):
        raise DataError(
            f"{url[:60]!r} is not the data URL of an image; embed the image in the observation "
            "with gem_core.images.image_part(bytes)"
        )
    try:
        data = base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DataError(f"an image is damaged: {error}") from None
    image_format(data)
    return data


def check_parts(observation: list[dict[str, Any]]) -> None:
    """Check that a model can be shown these content parts.

    Raises:
        DataError: A part is malformed; the message names it and says what is wrong.
    """
    for index, part in enumerate(observation):
        try:
            kind = part["type"]
            if kind == "image_url":
                image_bytes(part["image_url"]["url"])
            elif kind != "text":
                raise DataError(f"type={kind!r}: expected 'text' or 'image_url'")
            elif not isinstance(part["text"], str):
                raise DataError("text: expected a str")
        except (KeyError, TypeError, AttributeError) as error:
            raise DataError(f"part {index} of the observation is not a content part ({error})") from None
        except DataError as error:
            raise DataError(f"part {index} of the observation: {error}") from None


def require_pillow(needs_it: str) -> None:
    """Check that Pillow is installed.

    Args:
        needs_it: Name of the feature that needs Pillow, for the error message.

    Raises:
        MissingDependency: Pillow is not installed.
    """
    try:
        import PIL.Image  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingDependency(f"{needs_it} needs Pillow: pip install 'gem-core[vision]'") from error


def open_image(url: str) -> Image:
    """Decode the image in a data URL, as RGB on white. The result is shared: do not change it.

    Raises:
        DataError: The image cannot be decoded, or has more than `MOST_PIXELS` pixels.
        MissingDependency: Pillow is not installed.
    """
    require_pillow("decoding an image")
    from PIL import Image

    with _lock:
        if (kept := _opened.pop(url, None)) is not None:
            _opened[url] = kept  # the most recently used one is the last
            return kept
    data = image_bytes(url)
    try:
        with Image.open(io.BytesIO(data), formats=_DECODERS) as opened:
            width, height = opened.size
            if width * height > MOST_PIXELS:
                raise ValueError(f"{width} x {height} pixels are more than {MOST_PIXELS}")
            image = opened.convert("RGBA")
    except Exception as error:  # Pillow raises OSError, SyntaxError, ValueError, struct.error, ...
        raise DataError(f"an image of {len(data)} bytes cannot be decoded ({error_line(error)})") from None
    white = Image.new("RGBA", image.size, "white")
    shown: Image.Image = Image.alpha_composite(white, image).convert("RGB")
    with _lock:
        _opened[url] = shown
        while len(_opened) > 1 and sum(map(_size, _opened.items())) > _MOST_KEPT:
            del _opened[next(iter(_opened))]
    return shown


def _size(item: tuple[str, Image]) -> int:
    """Return the bytes that an image and its URL take."""
    return len(item[0]) + 3 * item[1].width * item[1].height


def image_format(data: bytes) -> str:
    if not isinstance(data, bytes):
        raise DataError(
            f"the image is of type {type(data).__name__}: expected the bytes of a {_FORMATS} file"
        )
    for magic, kind in _MAGIC.items():
        if data.startswith(magic) and (kind != "webp" or data[8:12] == b"WEBP"):
            return kind
    raise DataError(f"{len(data)} bytes starting with {data[:8]!r} are not an image ({_FORMATS})")
