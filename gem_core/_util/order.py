"""Seeded permutations of the items of a dataset, computed without a list."""

from __future__ import annotations

_MASK = 2**64 - 1


class Order:
    """A permutation of ``range(size)`` that is computed one position at a time.

    For a large dataset, a shuffled list would take milliseconds and megabytes at each seeded reset; this
    permutation takes microseconds. It is a Feistel network of four rounds on the next larger power of four,
    repeated until the result is in range (fewer than four times on average).

    Args:
        size: Number of items, at least 1.
        seed: Seed of the permutation.
    """

    def __init__(self, size: int, seed: int) -> None:
        self.size = size
        self._half = max(1, ((size - 1).bit_length() + 1) // 2)
        self._low = (1 << self._half) - 1
        self._keys = [_mix(seed + number * 0x9E3779B97F4A7C15) for number in range(1, 5)]

    def __getitem__(self, place: int) -> int:
        """Return the item at `place`, a position in ``range(size)``."""
        half, low = self._half, self._low
        while True:
            left, right = place >> half, place & low
            for key in self._keys:
                left, right = right, left ^ (_mix(right ^ key) & low)
            place = left << half | right
            if place < self.size:
                return place


def _mix(value: int) -> int:
    """Scramble 64 bits (the finalizer of SplitMix64)."""
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return value ^ value >> 31
