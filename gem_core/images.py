"""Images in observations: content parts, data URLs, and bytes."""

from __future__ import annotations

from gem_core._images import image_bytes, image_part, image_urls, text_part

__all__ = [
    "image_bytes",
    "image_part",
    "image_urls",
    "text_part",
]
