"""Decides when a replica writes a snapshot of the metadata and when it removes obsolete files.

A snapshot is due after a number of bytes or a time. It is written off the loop. Between two syncs after it, a new
segment begins, and snapshots and segments beyond the limits are removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from odradek.common.log_lines import get_logger
from odradek.common.ports import Clock, Disk, is_disk_full
from odradek.raft.snapshot import SnapshotId
from odradek.raft.storage import QuorumStorage

_log = get_logger("raft.snapshots")


class SnapshotWriter:
    """Writes the snapshots of one replica, one at a time."""

    def __init__(
        self,
        storage: QuorumStorage,
        *,
        disk: Disk,
        clock: Clock,
        sync_soon: Callable[[], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """
        Args:
            sync_soon: makes the driver sync; it then calls `clean` and `write_if_due`.
            on_failed: called if the log failed.
        """
        self._storage = storage
        self._disk = disk
        self._clock = clock
        self._sync_soon = sync_soon
        self._on_failed = on_failed
        self._began_ms = 0
        self._task: asyncio.Task[None] | None = None
        self._clean_due = False
        self._closed = False

    def begin(self) -> None:
        """The log is open: start the timer of the next snapshot."""
        self._began_ms = self._clock.monotonic_ms()

    async def close(self) -> None:
        """Wait for a snapshot that is being written; start no other."""
        self._closed = True
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def is_due(self) -> bool:
        """Whether a snapshot should be written now."""
        if self._closed or (self._task is not None and not self._task.done()):
            return False
        return self._storage.snapshot_due(self._clock.monotonic_ms() - self._began_ms)

    def write_if_due(self) -> None:
        """If a snapshot is due, start to write it in the background."""
        if self.is_due:
            self._task = asyncio.get_running_loop().create_task(self._try_to_write())

    def clean(self) -> None:
        """Remove files that the last snapshot made obsolete. Not during a sync. Raises StorageError."""
        if self._clean_due:
            self._clean_due = False
            self._storage.clean(self._clock.now_ms())

    async def write(self) -> SnapshotId:
        """Write the committed state as a snapshot. Raises OSError."""
        self._began_ms = self._clock.monotonic_ms()
        snapshot_id, write = self._storage.snapshot_writer(self._clock.now_ms())
        await self._disk.run_blocking(write)
        self._storage.snapshot_written()
        self._clean_due = True
        self._sync_soon()
        return snapshot_id

    async def _try_to_write(self) -> None:
        try:
            await self.write()
        except OSError as error:
            if is_disk_full(error):
                # The log still has these records; the snapshot is retried after as many bytes again.
                _log.warning("no space for a snapshot of the metadata", error=error)
            else:
                self._on_failed(error)
        except Exception as error:
            self._on_failed(error)
