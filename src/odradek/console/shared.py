"""Periodic requests of open pages, sent once for all pages, and only while a page needs them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from odradek.client.cluster import Cluster

T = TypeVar("T")


class Shared(Generic[T]):
    """The last response, which pages must not change; used only on the loop of `KafkaThread`."""

    def __init__(
        self, work: Callable[[Cluster], Awaitable[T]], fresh_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`fresh_s`: a response to a younger request is returned again."""
        self._work = work
        self._fresh_s = fresh_s
        self._clock = clock
        self._asked_s = float("-inf")
        self._task: asyncio.Future[T] | None = None

    async def get(self, cluster: Cluster) -> T:
        """The response, or that of a request in flight. Raises the error of `work`."""
        task = self._task
        if task is None or (task.done() and self._clock() - self._asked_s >= self._fresh_s):
            self._asked_s = self._clock()
            task = self._task = asyncio.ensure_future(self._work(cluster))
            # If all callers are cancelled, nothing reads the error.
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return await asyncio.shield(task)

    def invalidate(self) -> None:
        """Discard the response after a change."""
        self._task = None
