"""Increases of counters in the last minutes: Kafka has rates and quantiles of them; our counters begin at the start.

A scrape stores the values that it reads, and later scrapes subtract them. Nothing is stored without a scrape.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from odradek.common.metrics import Histogram

# "The last minute" ends with this scrape and begins with the last one that was so long before it.
WINDOW_MS = 60_000
# Scrapes that come closer together than this keep nothing of their own.
SPACING_MS = 10_000
Values = dict[str, tuple[float, ...]]


class Recent:
    """Values of counters, by key, as they were at scrapes."""

    def __init__(self, now_ms: int) -> None:
        """All are taken to be 0 at `now_ms`, in monotonic ms."""
        self._kept: deque[tuple[int, Values]] = deque([(now_ms, {})])
        self._seen: Values = {}
        self._now_ms = now_ms

    def begin(self, now_ms: int) -> None:
        """Begin a scrape: store the values of the last one, and remove those that are too old."""
        is_first = not self._kept[-1][1]
        if self._seen and (is_first or self._now_ms - self._kept[-1][0] >= SPACING_MS):
            self._kept.append((self._now_ms, self._seen))
        while len(self._kept) > 1 and now_ms - self._kept[1][0] >= WINDOW_MS:
            self._kept.popleft()
        self._now_ms, self._seen = now_ms, {}

    @property
    def seconds(self) -> float:
        """The length of the window; never 0."""
        return max(1, self._now_ms - self._kept[0][0]) / 1000

    def increase(self, key: str, values: Sequence[float]) -> list[float]:
        """The increase of each value in the window; a value that fell was reset to 0."""
        self._seen[key] = tuple(values)
        before = self._kept[0][1].get(key, ())
        if len(before) != len(values) or any(now < then for now, then in zip(values, before, strict=True)):
            return list(values)
        return [now - then for now, then in zip(values, before, strict=True)]

    def rate(self, key: str, value: float) -> float:
        """The increase per second since the first scrape of the window that has the value; 0 if none has.

        The value may begin above 0, as that of a log that exists at the start, and fall: a fall counts as no increase.
        """
        self._seen[key] = (value,)
        for then_ms, values in self._kept:
            if key in values:
                return max(0.0, value - values[key][0]) * 1000 / max(1, self._now_ms - then_ms)
        return 0.0

    def quantiles(self, key: str, spread: Histogram, wanted: Sequence[float]) -> list[float]:
        """Quantiles of the observations in the window, interpolated inside a bucket; 0 without any."""
        counts = self.increase(key, [count for _, count in spread.buckets])
        bounds = [float(bound) for bound, _ in spread.buckets]
        return [_quantile(bounds, counts, each) for each in wanted]


def _quantile(bounds: Sequence[float], counts: Sequence[float], wanted: float) -> float:
    """`counts` are cumulative; of the last bucket, which has no end, its beginning is taken."""
    rank = wanted * counts[-1]
    if not rank:
        return 0.0
    number = next(place for place, count in enumerate(counts) if count >= rank)
    below, lower = (counts[number - 1], bounds[number - 1]) if number else (0, 0.0)
    if number == len(bounds) - 1:
        return lower
    return lower + (bounds[number] - lower) * (rank - below) / (counts[number] - below)
