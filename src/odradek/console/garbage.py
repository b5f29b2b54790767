"""Full collections of garbage, by the clock and not by the number of new objects.

Each look at a large cluster brings millions of objects, all of which go by themselves with the next. Python would walk
through all of them several times a look, and no page would move meanwhile: 150 ms each with 100,000 partitions.
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
    """Young objects alone are looked through, by their number."""
    before = gc.get_threshold()
    gc.set_threshold(before[0], before[1], _NEVER)
    try:
        yield
    finally:
        gc.set_threshold(*before)


async def collect_now_and_then() -> None:
    """What pages leave behind in circles, until cancelled."""
    while True:
        await asyncio.sleep(EVERY_S)
        gc.collect()
