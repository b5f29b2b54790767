"""Divides long work into turns of the event loop, so that other requests are served in between.

One event loop serves all connections, so a request with a hundred thousand names must not block it. Turns are counted
in units of work and not in time, so that they are equal in each run of the simulator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
S = TypeVar("S")
# The partitions of a large request that are handled in one turn.
PARTITIONS_PER_TURN = 2000


async def in_turns(steps: Generator[None, None, T]) -> T:
    """Run all steps; other tasks run in between."""
    try:
        while True:
            next(steps)
            await asyncio.sleep(0)
    except StopIteration as ended:
        result: T = ended.value
        return result


def first_step_at_once(steps: Generator[None, None, T]) -> T | Coroutine[Any, Any, T]:
    """Run the first step in this turn; returns the result if there is no other, else a coroutine as `in_turns`."""
    try:
        next(steps)
    except StopIteration as ended:
        result: T = ended.value
        return result
    return in_turns(steps)


def in_slices(items: Sequence[T], count: int) -> Iterator[Sequence[T]]:
    """Slices of at most `count` items, in order; few items are one slice, without a copy."""
    if len(items) <= count:
        yield items
        return
    for first in range(0, len(items), count):
        yield items[first : first + count]


async def built_in_turns(items: Sequence[S], build: Callable[[S], T]) -> list[T]:
    """`build` of each item, in order; other tasks run after every `PARTITIONS_PER_TURN` items."""
    built: list[T] = []
    for some in in_slices(items, PARTITIONS_PER_TURN):
        if built:
            await asyncio.sleep(0)
        built += [build(each) for each in some]
    return built


class Turns:
    """The slices of one request."""

    __slots__ = ("_left", "_units")

    def __init__(self, units: int) -> None:
        """`units` is the work of one turn, at least 1; the caller defines a unit, so that a turn takes some ms."""
        self._units = self._left = units

    def fill(self, units: int = 1) -> bool:
        """Count work; returns whether the turn is full, for steps that then yield."""
        self._left -= units
        if self._left > 0:
            return False
        self._left = self._units
        return True

    async def spend(self, units: int = 1) -> None:
        """Count work; after a full turn, let other tasks run."""
        if self.fill(units):
            await asyncio.sleep(0)
