"""Histograms of latencies with 64 buckets for each power of two: percentiles are at most 1.6 % too high."""

from __future__ import annotations

import math
from collections.abc import Iterable

SUB_BITS = 6
SUB_COUNT = 1 << SUB_BITS


class Histogram:
    """A sparse histogram of whole numbers from 0 on."""

    __slots__ = ("_buckets", "count", "greatest", "total")

    def __init__(self, values: Iterable[int] = ()) -> None:
        self._buckets: dict[int, int] = {}
        self.count = 0
        self.total = 0
        self.greatest = 0
        for value in values:
            self.add(value)

    def add(self, value: int) -> None:
        """Count one value; negative values count as 0."""
        value = max(0, value)
        shift = max(0, value.bit_length() - SUB_BITS - 1)
        bucket = (shift << (SUB_BITS + 1)) | (value >> shift)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1
        self.count += 1
        self.total += value
        self.greatest = max(self.greatest, value)

    def merge(self, other: Histogram) -> None:
        """Add the counts of another histogram."""
        for bucket, count in list(other._buckets.items()):
            self._buckets[bucket] = self._buckets.get(bucket, 0) + count
        self.count += other.count
        self.total += other.total
        self.greatest = max(self.greatest, other.greatest)

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def percentile(self, percent: float) -> int:
        """The percentile, rounded up to the end of its bucket."""
        wanted = max(1, math.ceil(self.count * percent / 100))
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                return min(_last_of(bucket), self.greatest)
        return self.greatest

    def above(self, value: int) -> int:
        """The number of values in the buckets above that of `value`."""
        return sum(count for bucket, count in self._buckets.items() if _first_of(bucket) > value)


def _first_of(bucket: int) -> int:
    shift, top = bucket >> (SUB_BITS + 1), bucket & (2 * SUB_COUNT - 1)
    return top << shift


def _last_of(bucket: int) -> int:
    shift = bucket >> (SUB_BITS + 1)
    return _first_of(bucket) + (1 << shift) - 1
