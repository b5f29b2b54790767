"""Batches that the leader appended and that not all in-sync replicas have: their bytes are new for consumers later."""

from __future__ import annotations

from collections import deque

# More batches than these are counted as one.
MAX_ENTRIES = 10_000


class UnreplicatedBatches(deque[tuple[int, int]]):
    """End offsets (exclusive) and sizes, in order."""

    __slots__ = ()

    def add(self, end_offset: int, size_bytes: int) -> None:
        counted = self.pop()[1] if len(self) >= MAX_ENTRIES else 0
        self.append((end_offset, counted + size_bytes))

    def pop_below(self, end_offset: int) -> int:
        """Remove entries wholly below an offset; returns their bytes."""
        size_bytes = 0
        while self and self[0][0] <= end_offset:
            size_bytes += self.popleft()[1]
        return size_bytes
