"""Runs full garbage collections while no page is open, not by the number of new objects.

Each snapshot of a large cluster has millions of objects, which are freed with the next snapshot. Python would traverse
all of them several times for each snapshot, and block pages meanwhile: 150 ms each with 100,000 partitions. Reference
cycles are left by pages alone, some thousand objects by each.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERY_S = 600.0
LOOK_EVERY_S = 5.0
# While pages are open, collections take at most this share of the time: one of a second waits for five hours.
SHARE_WHILE_WATCHED = 1 / 20_000
# Of the first collection, before one was measured.
ASSUMED_S = 0.2
_NEVER = 1_000_000


@contextmanager
def without_full_collections() -> Iterator[None]:
    """Disable full collections; young objects are collected as usual."""
    before = gc.get_threshold()
    gc.set_threshold(before[0], before[1], _NEVER)
    try:
        yield
    finally:
        gc.set_threshold(*before)


class Collector:
    """Collects reference cycles of pages, most of all while no page is open."""

    def __init__(
        self,
        is_watched: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        collect: Callable[[], object] = gc.collect,
    ) -> None:
        """
        Args:
            is_watched: whether a browser has a page open, which a collection would block.
            clock: seconds.
            collect: a full collection.
        """
        self._is_watched = is_watched
        self._clock = clock
        self._collect = collect
        self._ended_s = clock()
        self._took_s = ASSUMED_S

    async def run(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.maybe_collect()

    def maybe_collect(self) -> bool:
        """Collect if it is time to; returns whether it was. Blocks all threads."""
        since_s = self._clock() - self._ended_s
        if since_s < EVERY_S or (since_s < self._took_s / SHARE_WHILE_WATCHED and self._is_watched()):
            return False
        began_s = self._clock()
        self._collect()
        self._ended_s = self._clock()
        self._took_s = self._ended_s - began_s
        return True
