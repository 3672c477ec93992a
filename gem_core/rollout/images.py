"""How the images of an episode stand in its record: each one once, after everything else.

An observation with images holds them as data URLs, and a wrapper that shows the history repeats them
turn after turn. In a record the parts name their image, ``"image:1f0c..."``, and ``"images"`` maps
the names to the URLs. So a line is complete, no longer than it has to be, and its beginning can be read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from gem_core.errors import TraceError

_NAME = "image:"


def take_out(turns: list[dict[str, Any]]) -> dict[str, str]:
    """Put names in the place of the images of some turns, which are changed.

    Returns:
        Name to data URL; empty where there is no image.
    """
    images: dict[str, str] = {}
    for part in _image_parts(turns):
        url = part["image_url"]["url"]
        name = _NAME + hashlib.sha256(url.encode()).hexdigest()[:16]
        images[name] = url
        part["image_url"]["url"] = name
    return images


def put_back(turns: list[dict[str, Any]], images: dict[str, str]) -> None:
    """Undo `take_out`.

    Raises:
        TraceError: An image is not there.
    """
    for part in _image_parts(turns):
        name = part["image_url"]["url"]
        if str(name).startswith(_NAME):
            if name not in images:
                raise TraceError(f"the image {name!r} is missing")
            part["image_url"]["url"] = images[name]


def _image_parts(turns: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for turn in turns:
        for shown in (turn["observation"], turn["info"].get("final_obs")):
            if isinstance(shown, list):
                yield from (part for part in shown if part.get("type") == "image_url")
