"""Which items of a data set are held out for evaluation, where the data set itself does not say.

Either rule holds out about one item in `HELD_OUT_SHARE`, gives the same split in every process, and keeps an
item on its side when the data set grows. A data set with at least two different items has at least one on
each side.
"""

from __future__ import annotations

import json
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, overload

from gem_core.core import Split

HELD_OUT_SHARE = 8
"""One item in this many is held out."""


class ItemSplit(NamedTuple):
    """Numbers of the items of a data set, in ascending order."""

    train: Sequence[int]
    held_out: Sequence[int]

    def of(self, split: Split) -> Sequence[int]:
        """The items of a split."""
        return self.train if split == "train" else self.held_out


def is_held_out(text: str) -> bool:
    """Whether the item with this text is held out: whether `HELD_OUT_SHARE` divides its CRC-32."""
    return _checksum(text) % HELD_OUT_SHARE == 0


def split_by_content(keys: Iterable[Sequence[Any]]) -> ItemSplit:
    """Split items by what they say, so that items that say the same are on the same side.

    Args:
        keys: For each item the values that tell it from others, such as its question. Letter case and
            the amount of white space in a text make no difference.
    """
    checksums = array("Q", (_checksum(_canonical(key)) for key in keys))
    held_out = {checksum for checksum in checksums if checksum % HELD_OUT_SHARE == 0}
    different = set(checksums)
    if len(different) > 1 and not held_out:
        held_out = {min(different)}
    elif len(different) > 1 and held_out == different:
        held_out -= {max(different)}
    elif len(different) == 1:
        held_out = set()  # there is nothing to split
    train, rest = array("Q"), array("Q")
    for number, checksum in enumerate(checksums):
        (rest if checksum in held_out else train).append(number)
    return ItemSplit(_Ascending(train), _Ascending(rest))


def split_by_number(size: int) -> ItemSplit:
    """Split items that are made on demand: every `HELD_OUT_SHARE`-th one is held out.

    Nothing is listed, so `size` may be billions.

    Args:
        size: Number of items.
    """
    held_out = range(HELD_OUT_SHARE - 1, size, HELD_OUT_SHARE)
    if held_out or size < 2:
        return ItemSplit(_Others(size - len(held_out)), held_out)
    return ItemSplit(range(size - 1), range(size - 1, size))


def undivided(size: int, held_out: bool, split: Split) -> range:
    """Items of a data set that belong to one split as a whole.

    Args:
        size: Number of items.
        held_out: Whether they are held out.
        split: Which items are asked for.
    """
    return range(size if held_out == (split == "held_out") else 0)


class _Ascending(Sequence[int]):
    """Numbers in ascending order, eight bytes each, in which one is found quickly."""

    def __init__(self, numbers: array[int]) -> None:
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> array[int]: ...
    def __getitem__(self, place: int | slice) -> int | array[int]:
        return self._numbers[place]

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, int):
            return False
        place = bisect_left(self._numbers, number)
        return place < len(self._numbers) and self._numbers[place] == number


class _Others(Sequence[int]):
    """0 to 6, 8 to 14, and so on: the numbers that `split_by_number` does not hold out."""

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
        return place + place // (HELD_OUT_SHARE - 1)

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, int) or number < 0 or number % HELD_OUT_SHARE == HELD_OUT_SHARE - 1:
            return False
        return number - number // HELD_OUT_SHARE < self._count


def _canonical(key: Sequence[Any]) -> str:
    parts = [" ".join(value.split()).casefold() if isinstance(value, str) else value for value in key]
    if len(parts) == 1 and isinstance(parts[0], str):
        return parts[0]
    return json.dumps(parts, default=_plain, sort_keys=True)


def _plain(value: Any) -> Any:
    return zlib.crc32(value) if isinstance(value, bytes | bytearray) else str(value)


def _checksum(text: str) -> int:
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))
