"""Taking turns: who was asked for much lets everybody else be served between its slices.

One loop serves all connections, so a request of a hundred thousand names must not hold it until the last one. Turns are
counted in units of work and not in time, which makes them the same in each run of the simulator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


async def in_turns(steps: Generator[None, None, T]) -> T:
    """Do all steps; all others have their turn between two."""
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
        """`units` is how much is done in one turn, at least 1; their owner says what a unit is: some ms for all."""
        self._units = self._left = units

    async def spend(self, units: int = 1) -> None:
        """So much was done; returns after all others had their turn, once a slice is full."""
        self._left -= units
        if self._left <= 0:
            self._left = self._units
            await asyncio.sleep(0)
