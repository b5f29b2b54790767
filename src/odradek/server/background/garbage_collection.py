"""Excludes long-lived objects from Python's garbage collector.

A full collection traverses all old objects at once: with 4,000 partitions on a broker it blocks requests for 150 ms. So
the objects that exist after the start, and after many partitions were created, are frozen (`gc.freeze`). Deleted
partitions are freed by reference counting, as almost all objects of a broker. When few partitions are left, frozen
objects are unfrozen, so that reference cycles are collected in the end.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

LOOK_S = 0.5
# The number of created or deleted partitions after which to freeze; their objects, some 60 each, take 10 ms to
# traverse.
MANY = 200
# Of the collector's three generations. Python's own 700, 10, 10 are for programs that hold little.
THRESHOLDS = (10_000, 20, 50)


class GarbageCollection:
    """Controls the collector of this process by the number of partitions, which have most of its objects."""

    def __init__(self, partition_count: Callable[[], int]) -> None:
        """`partition_count` returns how many there are now, deleted ones that are not gone yet included."""
        self._partition_count = partition_count
        self._frozen_count = 0

    def begin(self) -> None:
        """Set the thresholds and freeze all imported modules, before the start. Their traversal takes 30 ms; after the
        start leaders would wait for this broker's fetches as a follower."""
        gc.set_threshold(*THRESHOLDS)
        gc.collect()
        gc.freeze()

    def freeze(self) -> None:
        """Freeze all present objects."""
        gc.collect()
        gc.freeze()
        self._frozen_count = self._partition_count()

    async def run(self) -> None:
        """Check periodically, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.freeze_or_unfreeze()

    def freeze_or_unfreeze(self) -> None:
        """Freeze new objects; or unfreeze all, if few partitions are left."""
        count = self._partition_count()
        if count >= self._frozen_count + MANY:
            gc.freeze()
        elif count > self._frozen_count - MANY:
            return
        elif count < MANY:
            gc.unfreeze()
        self._frozen_count = count
