"""Problems with images: where the images go, and which rows cannot be shown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from gem_core._images import image_format
from gem_core.errors import DataError
from gem_core.images import image_bytes, image_part, text_part

_MARK = re.compile(r"<(image|video|audio)(?:[ _]?([0-9]+))?>")
"""The place of an image in a problem: ``<image>``, or ``<image 2>`` for the second one."""

_LIKELY = re.compile("image|img|picture|figure|photo", re.IGNORECASE)


def check_rows(rows: Any, question_key: str, image_key: str) -> None:
    """Check that every row has an image for each mark and a mark for each image.

    `rows` are `gem_envs.data.Rows`. Only those whose class has a method ``scan(columns)``, such as rows in
    memory or in local files, are read; the others are checked when they are shown.

    Raises:
        DataError: A row cannot be shown; the message names it.
    """
    if hasattr(rows, "scan") and getattr(rows, "is_local", True):
        _check_rows(rows, question_key, image_key)


@lru_cache(maxsize=8)
def _check_rows(rows: Any, question_key: str, image_key: str) -> None:
    """Implement `check_rows`, once for the environments of a process that share the rows."""
    for index, (problem, images) in enumerate(rows.scan((question_key, image_key))):
        if isinstance(problem, str):  # other values are rejected when they are read
            try:
                image_order(problem, len(entries_of(images)))
            except DataError as error:
                raise DataError(f"{rows.name}: {error} (row {index})") from None


def entries_of(images: Any) -> Sequence[Any]:
    """Return the images of a row: the entries of a list, a single image, or none for None.

    Raises:
        DataError: An entry of a list is missing.
    """
    entries = list(images) if isinstance(images, list | tuple) else [] if images is None else [images]
    for place, entry in enumerate(entries):
        if entry is None or (isinstance(entry, dict) and not (entry.get("bytes") or entry.get("path"))):
            raise DataError(f"image {place + 1} of {len(entries)} is missing")
    return entries


def image_order(problem: str, count: int) -> list[int]:
    """Return the index of the image at each mark of a problem, from 0; empty if it has no marks.

    Args:
        problem: Text of the problem.
        count: Number of images of the row.

    Raises:
        DataError: A mark has no image, an image has no mark although there are marks, or a mark is for
            something other than an image.
    """
    order: list[int] = []
    plain = 0
    for kind, number in _MARK.findall(problem):
        if kind != "image":
            raise DataError(f"the problem has the mark <{kind}>, but only images can be shown")
        order.append(int(number) - 1 if number else plain)
        plain += not number
    if order and set(order) != set(range(count)):
        wanted = "one mark per image" if max(order) < count else "an image for each mark"
        raise DataError(
            f"the problem has {len(order)} marks such as <image>, and there are {count} images: "
            f"expected {wanted}"
        )
    return order


def no_images(problem: str, columns: Sequence[str]) -> None:
    """Check that a problem that is asked without images has no mark of one.

    Raises:
        DataError: The problem has one; the message names the columns that may hold images.
    """
    mark = _MARK.search(problem)
    if mark is not None:
        likely = [
            name for name in columns if re.search("image|img|picture|figure|photo", name, re.IGNORECASE)
        ]
        columns_named = f"; columns that may hold images: {', '.join(likely)}" if likely else ""
        raise DataError(
            f"the problem shows {mark[0]}, but no image_key is given; set it to the column with the "
            f"images{columns_named}"
        )


def ask_with_images(problem: str, images: Sequence[dict[str, Any]], instruction: str) -> list[dict[str, Any]]:
    """Return content parts: the text with an image at each mark, or all images first if it has no marks.

    Raises:
        DataError: As in `image_order`.
    """
    order = image_order(problem, len(images))
    parts: list[dict[str, Any]] = [] if order else list(images)
    texts = _MARK.sub("\0", problem).split("\0")
    for index, text in enumerate(texts):
        if index:
            parts.append(images[order[index - 1]])
        if text.strip():
            parts.append(text_part(text.strip()))
    return [*parts, text_part(instruction)]


def read_images(images: Any, data: str) -> list[dict[str, Any]]:
    """Return the content parts of an entry of an image column.

    Args:
        images: An image, or a list of them: the bytes of a file (also in a dict, as on the hub), a data URL,
            or the name of a file next to the data.
        data: Name of the dataset, which is a path if images are files.

    Raises:
        DataError: An image is missing, or cannot be read.
    """
    return [_image(entry, data) for entry in entries_of(images)]


def _image(image: Any, data: str) -> dict[str, Any]:
    source = image
    if isinstance(image, dict):  # the format of the hub: bytes, and the original file name
        source = image.get("bytes") or image.get("path")
    try:
        if isinstance(source, str):
            named = source.startswith("data:")
            source = image_bytes(source) if named else _beside(data, source).read_bytes()
    except OSError as error:
        raise DataError(f"the image {source!r} cannot be read ({error.strerror})") from error
    part = image_part(source)
    check_complete(source)
    return part


def _beside(data: str, file: str) -> Path:
    """Return the path of a file named in the rows, which must be inside the folder of the data.

    Raises:
        DataError: The file is outside of that folder.
    """
    place = Path(data).expanduser()
    folder = (place if place.is_dir() else place.parent).resolve()
    path = (folder / file).resolve()
    if not path.is_relative_to(folder):
        raise DataError(f"the image {file!r} is outside the folder of the data; move it there")
    return path


def check_complete(data: bytes) -> None:
    """Check that the bytes of an image do not end early, by the marks at the end of its format.

    Raises:
        DataError: They do.
    """
    kind = image_format(data)
    if kind == "webp":
        whole = len(data) >= 8 + int.from_bytes(data[4:8], "little")
    else:
        whole = {"png": b"IEND", "jpeg": b"\xff\xd9", "gif": b";"}[kind] in data[16:]
    if not whole:
        raise DataError(f"the image is cut short: {len(data)} bytes of {kind} without its end")
