"""Passes committed records on to the publisher of images, many of them over several iterations of the event loop.

The topics of one CreateTopics are a batch of up to 20,000 records, which take a quarter of a second to apply: requests
of other clients are served in between. Callers that wait for a commit return when the records are published here, so
that what a client reads from this node after an answer has the change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from odradek.raft.outgoing import Commits
from odradek.raft.storage import QuorumStorage


class Publication:
    """The progress of one replica's publisher towards the high watermark.

    Attributes:
        offset: exclusive: all records below it are committed and published.
    """

    def __init__(self, storage: QuorumStorage, commits: Commits, on_failed: Callable[[BaseException], None]) -> None:
        """
        Args:
            commits: the callers that wait for a commit.
            on_failed: called if records cannot be applied: the node must stop.
        """
        self.offset = 0
        self._storage = storage
        self._commits = commits
        self._on_failed = on_failed
        self._high_watermark = 0
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def committed(self, high_watermark: int) -> bool:
        """Publish the records below `high_watermark` (exclusive); returns whether it is higher than any before.

        If there are many, this publishes the first, and the others in later iterations of the loop.
        """
        is_new = high_watermark > self._high_watermark
        self._high_watermark = max(self._high_watermark, high_watermark)
        if self._task is None and not self._closed and not self._publish_some():
            self._task = asyncio.get_running_loop().create_task(self._publish_rest())
        return is_new

    async def close(self) -> None:
        """Publish nothing more."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _publish_some(self) -> bool:
        """Publish as much as one iteration may; returns whether that was all."""
        is_all = self._storage.publish(self._high_watermark)
        self.offset = max(self.offset, self._high_watermark if is_all else self._storage.published_offset)
        self._commits.committed(self.offset)
        return is_all

    async def _publish_rest(self) -> None:
        try:
            while True:
                await asyncio.sleep(0)
                if self._publish_some():
                    break
        except Exception as error:
            self._on_failed(error)
        else:
            self._task = None
