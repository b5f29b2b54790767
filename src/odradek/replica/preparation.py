"""Prepares batches off the event loop before the append, and keeps the order of a partition.

Recompression and checks of single records take milliseconds. While one batch of a partition is prepared, all later
batches of the partition wait, ready or not: the batches of an idempotent producer must be appended in the order of
their sequence numbers. Decisions about a batch are made in order, together with the append.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.common.errors import OdradekError

if TYPE_CHECKING:
    from odradek.common.ports import Disk
    from odradek.replica.partition import Partition

Prepared = Any
Work = Callable[[], Prepared]
Then = Callable[[Prepared, OdradekError | None], None]


# More would not be faster, would leave no threads for flushes, and would need memory for more large batches.
MAX_AT_WORK = 2


class PartitionWorkQueues:
    """One line for each partition that has something to prepare; a few partitions are worked for at a time."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._at_work = asyncio.Semaphore(MAX_AT_WORK)
        self._lines: dict[Partition, deque[tuple[Work, Then]]] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}

    def is_busy(self, partition: Partition) -> bool:
        """Whether an append to this partition must get in line, whatever it needs."""
        return bool(self._lines) and partition in self._lines

    def run(self, partition: Partition, work: Work, then: Then) -> None:
        """Run `work` off the event loop, then call `then` on the loop with its result or error.

        For one partition, `work` and `then` run in the order of the calls.

        Args:
            work: touches nothing but its own arguments; may raise OdradekError.
        """
        line = self._lines.get(partition)
        if line is not None:
            line.append((work, then))
            return
        line = self._lines[partition] = deque([(work, then)])
        task = asyncio.get_running_loop().create_task(self._drain(partition, line))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _drain(self, partition: Partition, line: deque[tuple[Work, Then]]) -> None:
        try:
            while line:
                work, then = line[0]
                prepared, failure = None, None
                try:
                    async with self._at_work:
                        prepared = await self._disk.run_blocking(work)
                except OdradekError as error:
                    # Without the frames that raised it, which hold all that was decompressed.
                    failure = error.with_traceback(None)
                    failure.__context__ = None
                # Before the entry leaves the line: a later one must not overtake it.
                then(prepared, failure)
                line.popleft()
                del work, then, prepared, failure  # the batch, which is large: the next one may wait for long
        finally:
            del self._lines[partition]

    async def close(self) -> None:
        """Wait for all lines to end."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
