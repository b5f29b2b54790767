"""fsync before an acknowledgement, for topics with flush.messages.

Group commit: while one fsync of a partition runs, further appends wait for the next one. Kafka flushes inside the
append, so that all later appends wait; here only requests wait whose records are not durable yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.common.buggify import buggify
from odradek.common.errors import StorageError
from odradek.common.ports import is_out_of_descriptors

if TYPE_CHECKING:
    from odradek.common.ports import Disk
    from odradek.replica.partition import Partition

NO_SPACE_PAUSE_S = 0.5


class Flusher:
    """The flushes of one broker, one at a time for each partition."""

    def __init__(self, disk: Disk, on_failed: Callable[[StorageError], None]) -> None:
        """`on_failed` is called when a directory is lost."""
        self._disk = disk
        self._on_failed = on_failed
        self._running: dict[Partition, asyncio.Task[None]] = {}
        self._held: dict[Partition, None] = {}

    def request(self, partition: Partition) -> None:
        """Flush until the partition has fewer unflushed records than flush.messages."""
        if partition not in self._running and partition not in self._held:
            self._start(partition, once=False)

    async def hold(self, partition: Partition) -> None:
        """Wait for a running flush, and begin none before `release`.

        The log will be replaced by a copy that is being flushed: until then no record may be acknowledged as durable.
        """
        self._held[partition] = None
        running = self._running.get(partition)
        if running is not None:
            await asyncio.wait([running])

    def release(self, partition: Partition) -> None:
        """Allow flushes again; begin one if a request waits for it."""
        self._held.pop(partition, None)
        if partition.flush_is_due and not partition.closed:
            self.request(partition)

    async def flush(self, partition: Partition) -> None:
        """Make durable all that the partition holds now, after the flush that may be under way; held back, nothing."""
        if partition in self._held:
            return
        running = self._running.get(partition)
        if running is not None:
            await asyncio.wait([running])
        if partition not in self._running and partition not in self._held:
            await asyncio.wait([self._start(partition, once=True)])

    def _start(self, partition: Partition, *, once: bool) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._run(partition, once=once))
        self._running[partition] = task
        task.add_done_callback(lambda _: self._running.pop(partition, None))
        return task

    async def _run(self, partition: Partition, *, once: bool) -> None:
        while await self._flush(partition, once=once):
            once = True

    async def _flush(self, partition: Partition, *, once: bool) -> bool:
        """Flush while it is due; true where no file could be opened, and all of it is to be done again."""
        await buggify("replica: before a flush")
        log = partition.log
        try:
            while (once or partition.flush_is_due) and not partition.closed and partition not in self._held:
                once, log = False, partition.log
                end_offset, work = log.begin_flush()
                await self._disk.run_blocking(work)
                log.finish_flush(end_offset)
                partition.flushed()
                if not log.is_detached and log.recovery_point < min(end_offset, log.log_end_offset):
                    # No space for the checkpoint. Nothing is appended before it is written: a follower fetches no more
                    # until then.
                    await asyncio.sleep(NO_SPACE_PAUSE_S)
        except StorageError as error:
            self._on_failed(error)
            if not is_out_of_descriptors(error.__cause__) or partition.closed or log.is_detached:
                return False
            log.flush_state.undo()
            await asyncio.sleep(NO_SPACE_PAUSE_S)
            return True
        return False

    async def close(self) -> None:
        """Wait for running flushes."""
        await asyncio.gather(*self._running.values(), return_exceptions=True)
