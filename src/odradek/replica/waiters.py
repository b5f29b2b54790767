"""Futures of requests that wait for an offset or for data; progress completes them, and no timer scans them.

`OffsetWaiters` completes the waits for an offset, such as those of acknowledgements. `DataWait` is a long poll over any
number of partitions: each adds the bytes that became readable, and it ends at `min_bytes` or at its deadline. Source:
Kafka DelayedOperationPurgatory.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable
from typing import Protocol


class OffsetWaiters:
    """The waits for one offset to advance, such as the high watermark, as a heap."""

    __slots__ = ("_heap", "_sequence")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, asyncio.Future[None]]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._heap)

    def wait(self, offset: int) -> asyncio.Future[None]:
        """A future that completes once the awaited offset (exclusive end) is `offset` or above, or raises by `fail`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sequence += 1
        heapq.heappush(self._heap, (offset, self._sequence, future))
        return future

    def advance_to(self, offset: int) -> None:
        """Complete the waits up to `offset`."""
        heap = self._heap
        while heap and heap[0][0] <= offset:
            future = heapq.heappop(heap)[2]
            if not future.done():
                future.set_result(None)

    def fail(self, error: Exception) -> None:
        """Raise `error` in all waits: this leader advances the offset no further."""
        for _, _, future in self._heap:
            if not future.done():
                future.set_exception(error)
        self._heap.clear()


class DataSource(Protocol):
    """A partition whose new data a long poll waits for."""

    data_waits: dict[DataWait, None]


class DataWait:
    """One long poll. `future` completes with None when there is enough data, at the timeout, or when a source ends."""

    __slots__ = (
        "_missing_bytes",
        "_sources",
        "_timer",
        "committed_only",
        "future",
        "replica",
        "wakes_on_high_watermark",
    )

    def __init__(
        self,
        sources: Iterable[DataSource],
        *,
        missing_bytes: int,
        timeout_ms: int,
        replica: bool = False,
        committed_only: bool = False,
        wakes_on_high_watermark: bool = False,
    ) -> None:
        """
        Args:
            missing_bytes: how many bytes more it takes; at least 1.
            timeout_ms: from now.
            replica: it may read to the log's end, not only to the high watermark.
            committed_only: it may read to the last stable offset only.
            wakes_on_high_watermark: end the wait when the high watermark advances: this follower serves consumers.
        """
        loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = loop.create_future()
        self.replica = replica
        self.committed_only = committed_only
        self.wakes_on_high_watermark = wakes_on_high_watermark
        self._missing_bytes = max(1, missing_bytes)
        self._sources = tuple(sources)
        for source in self._sources:
            source.data_waits[self] = None
        self._timer = loop.call_later(timeout_ms / 1000, self.wake)
        self.future.add_done_callback(self._ended)

    def bytes_available(self, size_bytes: int) -> None:
        """A source has this much more to read."""
        self._missing_bytes -= size_bytes
        if self._missing_bytes <= 0:
            self.wake()

    def wake(self) -> None:
        """End the wait: enough is there, the time is over, or a source has changed."""
        if not self.future.done():
            self.future.set_result(None)

    def _ended(self, future: asyncio.Future[None]) -> None:
        self._timer.cancel()
        for source in self._sources:
            source.data_waits.pop(self, None)
        self._sources = ()
