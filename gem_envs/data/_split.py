"""Splits of datasets into training and evaluation items, for datasets without their own split.

Both rules reserve about one item in `EVAL_SHARE` for evaluation, give the same split in every process, and
keep an item in its split when the dataset grows. In a dataset with at least two different items, both
splits have at least one.
"""

from __future__ import annotations

import json
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, get_args, overload

from gem_core._core import Split
from gem_core._util.checks import check_choice

EVAL_SHARE = 8
"""One in this many items is for evaluation."""


class ItemSplit(NamedTuple):
    """Indices of the items of a dataset, in ascending order."""

    train: Sequence[int]
    eval: Sequence[int]

    def of(self, split: Split) -> Sequence[int]:
        """Return the items of a split."""
        return self.train if check_choice("split", split, get_args(Split)) == "train" else self.eval


def is_eval_item(text: str) -> bool:
    """Return whether the item with this text is for evaluation: whether `EVAL_SHARE` divides its CRC-32."""
    return _checksum(text) % EVAL_SHARE == 0


def split_by_content(keys: Iterable[Sequence[Any]]) -> ItemSplit:
    """Split items by content, so that items with the same content are in the same split.

    Args:
        keys: The values that identify each item, such as its question. Letter case and the amount of
            whitespace in a text do not matter.
    """
    checksums = array("Q", (_checksum(_canonical(key)) for key in keys))
    for_eval = {checksum for checksum in checksums if checksum % EVAL_SHARE == 0}
    different = set(checksums)
    if len(different) > 1 and not for_eval:
        for_eval = {min(different)}
    elif len(different) > 1 and for_eval == different:
        for_eval -= {max(different)}
    elif len(different) == 1:
        for_eval = set()  # there is nothing to split
    train, rest = array("Q"), array("Q")
    for index, checksum in enumerate(checksums):
        (rest if checksum in for_eval else train).append(index)
    return ItemSplit(_Ascending(train), _Ascending(rest))


def split_by_index(size: int) -> ItemSplit:
    """Split items that are generated on demand: every `EVAL_SHARE`-th one is for evaluation.

    No list is created, so `size` may be billions.

    Args:
        size: Number of items.
    """
    for_eval = range(EVAL_SHARE - 1, size, EVAL_SHARE)
    if for_eval or size < 2:
        return ItemSplit(_Others(size - len(for_eval)), for_eval)
    return ItemSplit(range(size - 1), range(size - 1, size))


def undivided(size: int, eval_only: bool, split: Split) -> range:
    """Return the items of an undivided dataset, whose items all belong to one split.

    Args:
        size: Number of items.
        eval_only: Whether all items are for evaluation only; otherwise all are for training.
        split: The requested split.
    """
    check_choice("split", split, get_args(Split))
    return range(size if eval_only == (split == "eval") else 0)


class _Ascending(Sequence[int]):
    """Ascending indices of eight bytes each, with fast membership tests."""

    def __init__(self, indices: array[int]) -> None:
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> array[int]: ...
    def __getitem__(self, place: int | slice) -> int | array[int]:
        return self._indices[place]

    def __contains__(self, index: object) -> bool:
        if not isinstance(index, int):
            return False
        place = bisect_left(self._indices, index)
        return place < len(self._indices) and self._indices[place] == index


class _Others(Sequence[int]):
    """The indices 0 to 6, 8 to 14, and so on, which `split_by_index` uses for training."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> list[int]: ...
    def __getitem__(self, place: int | slice) -> int | list[int]:
        if isinstance(place, slice):
            return [self[p] for p in range(*place.indices(self._count))]
        place = range(self._count)[place]
        return place + place // (EVAL_SHARE - 1)

    def __contains__(self, index: object) -> bool:
        if not isinstance(index, int) or index < 0 or index % EVAL_SHARE == EVAL_SHARE - 1:
            return False
        return index - index // EVAL_SHARE < self._count


def _canonical(key: Sequence[Any]) -> str:
    parts = [" ".join(value.split()).casefold() if isinstance(value, str) else value for value in key]
    if len(parts) == 1 and isinstance(parts[0], str):
        return parts[0]
    return json.dumps(parts, default=_plain, sort_keys=True)


def _plain(value: Any) -> Any:
    return zlib.crc32(value) if isinstance(value, bytes | bytearray) else str(value)


def _checksum(text: str) -> int:
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))
