"""Passes committed records on to the publisher of images, many of them over several iterations of the event loop.

The topics of one CreateTopics are a batch of up to 20,000 records, which take a quarter of a second to apply: requests
of other clients are served in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from odradek.raft.storage import QuorumStorage


class Publication:
    """The progress of one replica's publisher towards the high watermark."""

    def __init__(self, storage: QuorumStorage, on_failed: Callable[[BaseException], None]) -> None:
        """`on_failed` is called if records cannot be applied: the node must stop."""
        self._storage = storage
        self._on_failed = on_failed
        self._high_watermark = 0
        self._task: asyncio.Task[None] | None = None

    def committed(self, high_watermark: int) -> bool:
        """Publish the records below `high_watermark` (exclusive); returns whether it is higher than any before.

        If there are many, this publishes the first, and the others in later iterations of the loop.
        """
        is_new = high_watermark > self._high_watermark
        self._high_watermark = max(self._high_watermark, high_watermark)
        if self._task is None and not self._storage.publish(self._high_watermark):
            self._task = asyncio.get_running_loop().create_task(self._publish_rest())
        return is_new

    async def close(self) -> None:
        """Publish nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _publish_rest(self) -> None:
        try:
            while True:
                await asyncio.sleep(0)
                if self._storage.publish(self._high_watermark):
                    break
        except Exception as error:
            self._on_failed(error)
        else:
            self._task = None
