"""Divides long work into turns of the event loop, so that other requests are served in between.

One event loop serves all connections, so a request with a hundred thousand names must not block it. Turns are counted
in units of work and not in time, so that they are equal in each run of the simulator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


async def in_turns(steps: Generator[None, None, T]) -> T:
    """Run all steps; other tasks run in between."""
    try:
        while True:
            next(steps)
            await asyncio.sleep(0)
    except StopIteration as ended:
        result: T = ended.value
        return result


class Turns:
    """The slices of one request."""

    __slots__ = ("_left", "_units")

    def __init__(self, units: int) -> None:
        """`units` is the work of one turn, at least 1; the caller defines a unit, so that a turn takes some ms."""
        self._units = self._left = units

    async def spend(self, units: int = 1) -> None:
        """Count work; after a full turn, let other tasks run."""
        self._left -= units
        if self._left <= 0:
            self._left = self._units
            await asyncio.sleep(0)
