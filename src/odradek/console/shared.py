"""What open pages ask a cluster again and again: asked once for all of them, and only while one of them asks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from odradek.client.cluster import Cluster

T = TypeVar("T")


class Shared(Generic[T]):
    """The last answer, which pages may not change; on the loop of `KafkaThread` alone."""

    def __init__(
        self, work: Callable[[Cluster], Awaitable[T]], fresh_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`fresh_s`: an answer whose question is younger is given again."""
        self._work = work
        self._fresh_s = fresh_s
        self._clock = clock
        self._asked_s = float("-inf")
        self._task: asyncio.Future[T] | None = None

    async def get(self, cluster: Cluster) -> T:
        """The answer, or that which others wait for by now. Raises what `work` raises."""
        task = self._task
        if task is None or (task.done() and self._clock() - self._asked_s >= self._fresh_s):
            self._asked_s = self._clock()
            task = self._task = asyncio.ensure_future(self._work(cluster))
            # Those who wait may go: what went wrong is then heard by none.
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return await asyncio.shield(task)

    def forget(self) -> None:
        """Something was changed: the next one who asks does not get what was found before."""
        self._task = None
