"""The distribution of whole numbers, as a histogram that costs the hot path one append: they are
sorted later, many at once.

Bounds are powers of two, each four times the one before, so that sorting compares nothing.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

from odradek.common.metrics import Histogram

# So many are kept before they are sorted, and memory is free again.
FOLD_AT = 4096
NS_PER_S = 1_000_000_000


@cache
def _bounds(first_bits: int, last_bits: int, per_unit: int) -> tuple[tuple[int, str], ...]:
    """The bounds: how many bits a number within each has at most, and how the bound is shown."""
    return tuple((bits, repr((1 << bits) / per_unit)) for bits in range(first_bits, last_bits + 1, 2))


class Spread:
    """Numbers from 0 on.

    Attributes:
        added: those that are not sorted yet. The hot path appends to it, which costs less than a call of `add`.
    """

    __slots__ = ("_bounds", "_by_bits", "_per_unit", "_sum", "added")

    def __init__(self, first_bits: int, last_bits: int, per_unit: int) -> None:
        """
        Args:
            first_bits, last_bits: the exponents of the smallest and the largest bound.
            per_unit: the number of counted units in one displayed unit.
        """
        self._bounds = _bounds(first_bits, last_bits, per_unit)
        self._per_unit = per_unit
        self.added: list[int] = []
        self._by_bits: Counter[int] = Counter()
        self._sum = 0

    def add(self, number: int) -> None:
        """Take one."""
        self.added.append(number)

    def fold(self) -> None:
        """Sort added values into the buckets."""
        added = self.added
        # n < 2**bits for bits = n.bit_length(): n is within the bound of its bits.
        self._by_bits.update(map(int.bit_length, added))
        self._sum += sum(added)
        added.clear()

    @property
    def count(self) -> int:
        """The number of values."""
        return self._by_bits.total() + len(self.added)

    @property
    def is_due(self) -> bool:
        """Whether it is time to fold."""
        return len(self.added) >= FOLD_AT

    def histogram(self, labels: tuple[tuple[str, str], ...] = (), zeros: int = 0) -> Histogram:
        """All of them, and so many zeros that were not added."""
        self.fold()
        within = zeros
        buckets: list[tuple[str, int]] = []
        counted = iter(sorted(self._by_bits.items()))
        following = next(counted, None)
        for last_bits, bound in self._bounds:
            while following is not None and following[0] <= last_bits:
                within += following[1]
                following = next(counted, None)
            buckets.append((bound, within))
        buckets.append(("+Inf", zeros + self._by_bits.total()))
        return Histogram(tuple(buckets), self._sum / self._per_unit, labels)


def durations() -> Spread:
    """Nanoseconds, shown in seconds: bounds from 66 microseconds to 17 s."""
    return Spread(16, 34, NS_PER_S)


def sizes() -> Spread:
    """Bytes: bounds from 64 B to 256 MiB."""
    return Spread(6, 28, 1)
