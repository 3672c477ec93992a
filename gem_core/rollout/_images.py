"""Images in the record of an episode: each image is stored once, after everything else.

Observations hold images as data URLs, and a wrapper that shows the history repeats them in every turn. In a
record, the content parts refer to an image by name (``"image:1f0c..."``), and ``"images"`` maps the names to
the URLs. Each line is therefore complete and compact, and its beginning is readable.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from gem_core.errors import TraceError

_NAME = "image:"


def has_images(turns: list[dict[str, Any]]) -> bool:
    """Return whether `extract_images` would find an image."""
    return any(True for _ in _image_parts(turns))


def extract_images(turns: list[dict[str, Any]]) -> dict[str, str]:
    """Replace the images in `turns` by names, in place.

    Returns:
        Data URL by name; empty if there are no images.
    """
    images: dict[str, str] = {}
    for part in _image_parts(turns):
        url = part["image_url"]["url"]
        name = _NAME + hashlib.sha256(url.encode()).hexdigest()[:16]
        images[name] = url
        part["image_url"]["url"] = name
    return images


def restore_images(turns: list[dict[str, Any]], images: dict[str, str]) -> None:
    """Undo `extract_images`.

    Raises:
        TraceError: An image is missing.
    """
    for part in _image_parts(turns):
        name = part["image_url"]["url"]
        if str(name).startswith(_NAME):
            if name not in images:
                raise TraceError(f"the image {name!r} is missing")
            part["image_url"]["url"] = images[name]


def _image_parts(turns: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for turn in turns:
        for observation in (turn.get("observation"), turn.get("info", {}).get("final_obs")):
            if isinstance(observation, list):
                yield from (part for part in observation if part.get("type") == "image_url")
