"""What lives as long as its partition does is not looked through for garbage again and again.

Python's collector looks now and then through every object that lives long, all at once: with 4,000 partitions on a
broker, 150 ms in which no request is served. What is there after the start, and after many partitions were made, is set
aside instead (`gc.freeze`). Partitions that are deleted go when nothing refers to them any more, as almost all that a
broker makes, and need no collector; it is let at what is set aside when few partitions are left, so that what refers to
itself is found in the end.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

LOOK_S = 0.5
# Partitions made or gone, at some 60 objects each, that are worth it; so many are looked through in 10 ms.
MANY = 200
# Of the collector's three generations. Python's own 700, 10, 10 are for programs that hold little.
THRESHOLDS = (10_000, 20, 50)


class GarbageCollection:
    """Looks after the collector of this process; the partitions are what there is most of."""

    def __init__(self, partition_count: Callable[[], int]) -> None:
        """`partition_count` returns how many there are now, deleted ones that are not gone yet included."""
        self._partition_count = partition_count
        self._frozen_count = 0

    def begin(self) -> None:
        """Before the start, of which almost all stays. What was imported is set aside here: looking through it takes
        30 ms, and when the start is over, others wait for what this broker has to acknowledge as a follower."""
        gc.set_threshold(*THRESHOLDS)
        gc.collect()
        gc.freeze()

    def freeze(self) -> None:
        """All that was made so far stays."""
        gc.collect()
        gc.freeze()
        self._frozen_count = self._partition_count()

    async def run(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.freeze_or_unfreeze()

    def freeze_or_unfreeze(self) -> None:
        """Set aside what has come, or let the collector at it where that is little."""
        count = self._partition_count()
        if count >= self._frozen_count + MANY:
            gc.freeze()
        elif count > self._frozen_count - MANY:
            return
        elif count < MANY:
            gc.unfreeze()
        self._frozen_count = count
