"""Progress once the faults have ended: so much time, and then a line for each task that still waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.sim.loop import SimLoop

# Before the end, as whatever waits is cancelled then, and waits for nothing any more.
LOOKED_AT_BEFORE_S = 0.01


@asynccontextmanager
async def progress(loop: SimLoop, limit_s: float, waits: Callable[[], str], problems: list[str]) -> AsyncIterator[None]:
    """Let a block run for so long after the faults; where it has not ended then, that is a problem, and so is a timeout
    in it.

    Args:
        limit_s: simulated seconds.
        waits: which of those that should have ended have not.
        problems: gets what that says, and which task waits at which line for what.
    """
    looks: list[str] = []

    def look() -> None:
        text = f"no progress {limit_s:g} s after the faults ended; {waits()}"
        looks.append(f"{text}\n{loop.who_waits()}")

    alarm = loop.call_later(limit_s - LOOKED_AT_BEFORE_S, look)
    try:
        async with asyncio.timeout(limit_s):
            yield
    except TimeoutError:
        if not looks:
            look()
        problems += looks
    finally:
        alarm.cancel()
