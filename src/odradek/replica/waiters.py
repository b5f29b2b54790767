"""Waiting for an offset or for data: a future that is woken by progress, and one timer of the loop. No scan, no list of
all who wait.

`OffsetWaiters` releases those that wait for a mark to reach an offset (an acknowledgement). `DataWait` is a long poll
over any number of partitions: each reports how many bytes became readable, and it ends at `min_bytes` or by time.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable
from typing import Protocol


class OffsetWaiters:
    """Who waits for one mark, as a heap by offset."""

    __slots__ = ("_heap", "_sequence")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, asyncio.Future[None]]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._heap)

    def wait(self, offset: int) -> asyncio.Future[None]:
        """A future that ends when the mark, an exclusive end, is at `offset` or above; `fail` breaks it."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sequence += 1
        heapq.heappush(self._heap, (offset, self._sequence, future))
        return future

    def advance_to(self, offset: int) -> None:
        """The mark is now at `offset`."""
        heap = self._heap
        while heap and heap[0][0] <= offset:
            future = heapq.heappop(heap)[2]
            if not future.done():
                future.set_result(None)

    def fail(self, error: Exception) -> None:
        """The mark will not get further under this leader."""
        for _, _, future in self._heap:
            if not future.done():
                future.set_exception(error)
        self._heap.clear()


class DataSource(Protocol):
    """What a long poll waits on."""

    data_waits: dict[DataWait, None]


class DataWait:
    """One long poll. `future` ends, without a value, when enough came, when time is up, or when a source ended."""

    __slots__ = ("_missing_bytes", "_sources", "_timer", "committed_only", "future", "marks", "replica")

    def __init__(
        self,
        sources: Iterable[DataSource],
        *,
        missing_bytes: int,
        timeout_ms: int,
        replica: bool = False,
        committed_only: bool = False,
        marks: bool = False,
    ) -> None:
        """
        Args:
            missing_bytes: how many bytes more it takes; at least 1.
            timeout_ms: from now.
            replica: it may read to the log's end, not only to the high watermark.
            committed_only: it may read to the last stable offset only.
            marks: a replica that wants to hear at once of a high watermark that moved, since it serves consumers.
        """
        loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = loop.create_future()
        self.replica = replica
        self.committed_only = committed_only
        self.marks = marks
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
        """Look again: enough is there, time is up, or a source is not what it was."""
        if not self.future.done():
            self.future.set_result(None)

    def _ended(self, future: asyncio.Future[None]) -> None:
        self._timer.cancel()
        for source in self._sources:
            source.data_waits.pop(self, None)
        self._sources = ()
