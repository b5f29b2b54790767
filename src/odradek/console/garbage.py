"""Runs full garbage collections by time, not by the number of new objects.

Each snapshot of a large cluster has millions of objects, which are freed with the next snapshot. Python would traverse
all of them several times for each snapshot, and block pages meanwhile: 150 ms each with 100,000 partitions.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager

EVERY_S = 600.0
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


async def collect_now_and_then() -> None:
    """Collect reference cycles of pages periodically, until cancelled."""
    while True:
        await asyncio.sleep(EVERY_S)
        gc.collect()
