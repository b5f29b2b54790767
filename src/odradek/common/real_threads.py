"""Runs blocking work, or computations of milliseconds, in a thread while the event loop serves requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ThreadWork(Generic[T]):
    """Work for a thread; it uses no state that the loop changes, so that a simulated loop can run it at once."""

    work: Callable[[], T]

    def __call__(self) -> T:
        return self.work()


async def off_loop(work: Callable[[], T]) -> T:
    """Wait for work in a thread. A caller that is cancelled does not end it."""
    return await asyncio.get_running_loop().run_in_executor(None, ThreadWork(work))
