"""What lives as long as its partition does is not looked through for garbage again and again.

Python's collector looks now and then through every object that lives long, all at once: with 4,000 partitions on a
broker, 150 ms in which nobody is served. What is there after the start, and after many partitions were made, is set
aside instead (`gc.freeze`), and comes back when many have gone, so that what is left of them is found.
Almost all else that a broker makes goes when nobody refers to it, without the collector.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

LOOK_S = 0.5
# Partitions made or gone, at some 60 objects each, that are worth it.
MANY = 200
# Of the collector's three generations. Python's own 700, 10, 10 are for programs that hold little.
THRESHOLDS = (10_000, 20, 50)


class LongLived:
    """Looks after the collector of this process; the partitions are what there is most of."""

    def __init__(self, partition_count: Callable[[], int]) -> None:
        """`partition_count` tells how many there are now."""
        self._partition_count = partition_count
        self._set_aside = 0

    def begin(self) -> None:
        """Before the start, of which almost all stays. What was imported is set aside here: looking through it takes
        30 ms, and when the start is over, others wait for what this broker has to acknowledge as a follower."""
        gc.set_threshold(*THRESHOLDS)
        gc.collect()
        gc.freeze()

    def set_aside(self) -> None:
        """All that was made so far stays."""
        gc.collect()
        gc.freeze()
        self._set_aside = self._partition_count()

    async def run(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        """Set aside what has come, or let the collector have what has gone."""
        count = self._partition_count()
        if count >= self._set_aside + MANY:
            gc.freeze()
        elif count <= self._set_aside - MANY:
            gc.unfreeze()
        else:
            return
        self._set_aside = count
