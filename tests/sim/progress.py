"""Progress once the faults have ended: so much time, and then a line for each task that still waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.sim.loop import SimLoop

# The description is made this long before the end, when waiting tasks are cancelled.
LOOKED_AT_BEFORE_S = 0.01


@asynccontextmanager
async def progress(loop: SimLoop, limit_s: float, waits: Callable[[], str], problems: list[str]) -> AsyncIterator[None]:
    """Let a block run for some time after the faults; it is a problem if it has not ended then, or times out itself.

    Args:
        limit_s: simulated seconds.
        waits: describes the clients and tasks that should have ended and have not.
        problems: gets that description, and a line for each task that waits.
    """
    found: list[str] = []

    def describe() -> None:
        text = f"no progress {limit_s:g} s after the faults ended; {waits()}"
        found.append(f"{text}\n{loop.who_waits()}")

    alarm = loop.call_later(limit_s - LOOKED_AT_BEFORE_S, describe)
    try:
        async with asyncio.timeout(limit_s):
            yield
    except TimeoutError:
        if not found:
            describe()
        problems += found
    finally:
        alarm.cancel()
