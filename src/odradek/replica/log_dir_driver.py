"""Moves replicas between the log directories of this broker, in one task that copies a piece of each in turn.

Moves begin by AlterReplicaLogDirs, or continue after a start that finds future replicas. This module does the I/O;
`log_dir_move.LogDirMove` decides what is copied and truncated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.common.buggify import buggify
from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.log_lines import get_logger
from odradek.common.ports import is_out_of_descriptors
from odradek.common.token_bucket import TokenBucket
from odradek.log.future import copy_leader_epochs
from odradek.replica.log_dir_move import LogDirMove, Stage

if TYPE_CHECKING:
    from odradek.log.log import Log
    from odradek.log.manager import LogManager
    from odradek.replica.flusher import Flusher
    from odradek.replica.partition import Partition

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
IDLE_MS = 20
# The pause after an error that may be temporary: no space, or a damaged batch that is being repaired.
RETRY_MS = 5_000
MAX_QUOTA_PAUSE_MS = 1_000
_log = get_logger("replica.log_dirs")
Key = tuple[str, int]

# Report to the controller that a partition is about to move to a directory, and call back when it knows.
ReportMove = Callable[["Partition", Path, Callable[[], None]], None]


class LogDirMoves:
    """The moves of one broker."""

    def __init__(
        self,
        manager: LogManager,
        flusher: Flusher,
        on_storage_failed: Callable[[StorageError], None],
        *,
        report: ReportMove,
        on_ended: Callable[[Partition], None],
    ) -> None:
        """
        Args:
            on_storage_failed: called when a directory is lost.
            report: reports to the controller where a partition is about to be.
            on_ended: called when a move has ended, or was cancelled.
        """
        self._manager = manager
        self._clock = manager.clock
        self._flusher = flusher
        self._on_storage_failed = on_storage_failed
        self._report = report
        self._on_ended = on_ended
        self.quota = TokenBucket()
        self.piece_bytes = 1 << 20  # replica.fetch.max.bytes, as for what is copied from other brokers
        self.moved_bytes = 0
        self._moves: dict[Key, LogDirMove] = {}
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    def change_piece_bytes(self, piece_bytes: int) -> None:
        """Copy so many bytes at a time from now on."""
        self.piece_bytes = piece_bytes

    def get(self, key: Key) -> LogDirMove | None:
        """The move of a partition that is under way."""
        return self._moves.get(key)

    def begin(self, partition: Partition, log_dir: Path) -> None:
        """Move a partition to another directory.

        A move to a third directory is cancelled, and so is any move if the partition is in that directory already.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR, no space, or a directory is offline: a future replica in it may return;
                INVALID_TOPIC_EXCEPTION. StorageError.
        """
        key = (partition.topic, partition.partition_id)
        move = self._moves.get(key)
        if move is not None and move.future.log_dir != log_dir:
            self.cancel(partition)
            move = None
        if move is not None or partition.log.log_dir == log_dir:
            return
        if len(self._manager.online_dirs()) < len(self._manager.dirs):
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "no replica is moved while a log directory is offline")
        self._start(partition, self._manager.futures.create(partition.log, partition.topic_id, log_dir))

    def resume(self, partition: Partition) -> None:
        """Continue with the future replica that a start has found. Raises StorageError."""
        key = (partition.topic, partition.partition_id)
        futures = self._manager.futures
        future = futures.get(key)
        if future is None or key in self._moves:
            return
        if futures.topic_ids[key] != partition.topic_id:
            futures.delete(key)
            return
        self._start(partition, future)

    def _start(self, partition: Partition, future: Log) -> None:
        self._moves[partition.topic, partition.partition_id] = LogDirMove(partition, future)
        _log.info("replica move started", partition=partition.name, source=partition.log.log_dir, target=future.log_dir)
        if self._task is None and not self._closing:
            self._task = asyncio.get_running_loop().create_task(self._work())

    def cancel(self, partition: Partition) -> None:
        """Cancel a move: the replica stays in its directory. Raises StorageError."""
        self._remove_move(partition)
        self._manager.futures.delete((partition.topic, partition.partition_id))
        self._on_ended(partition)

    def partition_closed(self, partition: Partition) -> None:
        """The partition is gone, or its directory failed; the deletion of its log deletes the copy."""
        self._remove_move(partition)

    def _remove_move(self, partition: Partition) -> None:
        move = self._moves.pop((partition.topic, partition.partition_id), None)
        if move is not None:
            self._flusher.release(partition)

    def directory_failed(self, log_dir: Path) -> None:
        """Cancel the moves to a directory that is offline."""
        for move in [move for move in self._moves.values() if move.future.log_dir == log_dir]:
            self._remove_move(move.partition)
            self._on_ended(move.partition)

    async def close(self) -> None:
        """Stop; the next start continues."""
        self._closing = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # -- working ------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        while self._moves:
            progress = False
            for move in list(self._moves.values()):
                if self._is_current(move) and self._clock.monotonic_ms() >= move.retry_at_ms:
                    progress |= await self._step(move)
            if not progress:
                await asyncio.sleep(IDLE_MS / 1000)
        self._task = None

    def _is_current(self, move: LogDirMove) -> bool:
        """Whether this move is still wanted; it may have been cancelled, or its log deleted, while a thread worked."""
        key = (move.partition.topic, move.partition.partition_id)
        return self._moves.get(key) is move and not move.is_over

    async def _step(self, move: LogDirMove) -> bool:
        try:
            return await self._copy(move)
        except StorageError as error:
            self._on_storage_failed(error)
        except OSError as error:
            if self._is_current(move):
                self._on_storage_failed(StorageError(move.source.log_dir, f"{move.source.directory}: {error}"))
        except ApiError as error:
            move.retry_at_ms = self._clock.monotonic_ms() + RETRY_MS
            if move.logged_failure != str(error):
                move.logged_failure = str(error)
                _log.warning("a replica cannot be moved yet", partition=move.partition.name, error=error)
        except Exception as error:
            self._remove_move(move.partition)
            _log.bug("a replica is not moved", error, partition=move.partition.name)
        return False

    async def _copy(self, move: LogDirMove) -> bool:
        """Copy one piece, or take the next step where nothing is left; returns whether there may be more at once."""
        await self._wait_for_quota()
        if not self._is_current(move) or self.quota.is_exhausted(self._clock.monotonic_ms()):
            return True
        if await self._copy_piece(move):
            if self._is_current(move) and move.wants_flush:
                await self._flush(move)
            return True
        return await self._promote(move)

    async def _copy_piece(self, move: LogDirMove) -> bool:
        """Whether there was something to copy."""
        token, chunks = move.begin_read(self.piece_bytes, self._clock.now_ms())
        if not chunks:
            return False
        data = await self._manager.disk.run_blocking(lambda: b"".join(chunk.read() for chunk in chunks))
        await buggify("replica: before a piece of a move is taken")
        if self._is_current(move):
            size_bytes = move.append(token, data, self._clock.now_ms())
            self.moved_bytes += size_bytes
            self.quota.spend(size_bytes, self._clock.monotonic_ms())
        return True

    async def _copy_up_to(self, move: LogDirMove, offset: int) -> None:
        while self._is_current(move) and move.future.log_end_offset < offset and await self._copy_piece(move):
            pass

    async def _wait_for_quota(self) -> None:
        pause_ms = self.quota.ready_in_ms(self._clock.monotonic_ms())
        if pause_ms != 0:
            # The rate may change during the wait: the next round uses it.
            await asyncio.sleep(min(MAX_QUOTA_PAUSE_MS, pause_ms or MAX_QUOTA_PAUSE_MS) / 1000)

    async def _flush(self, move: LogDirMove) -> None:
        copy_leader_epochs(move.future, move.source)
        try:
            end_offset, work = move.future.begin_flush()
            move.flushed()
            await self._manager.disk.run_blocking(work)
        except StorageError as error:
            if is_out_of_descriptors(error.__cause__) and not move.future.is_detached:
                move.future.flush_state.undo()
            raise
        if self._is_current(move):
            move.future.finish_flush(end_offset)

    async def _promote(self, move: LogDirMove) -> bool:
        """The copy is complete: report its directory to the controller, and then replace the log by it."""
        if move.stage is Stage.COPYING:
            move.to_stage(Stage.REPORTING)

            def confirmed() -> None:
                move.to_stage(Stage.REPORTED)

            self._report(move.partition, move.future.log_dir, confirmed)
        if move.stage is not Stage.REPORTED or move.partition.is_being_repaired:
            return False
        # This flush may take long; the next, for which acknowledgements of durability wait, does not.
        await self._flush(move)
        await self._flusher.hold(move.partition)
        try:
            await buggify("replica: before a move is finished")
            # All records acknowledged as durable are below the present log end, and are flushed in the copy.
            await self._copy_up_to(move, move.source.log_end_offset)
            if self._is_current(move):
                await self._flush(move)
            await self._copy_up_to(move, move.source.log_end_offset)
            if self._is_current(move) and move.finish(self._clock.now_ms()):
                self._swap(move)
        finally:
            self._flusher.release(move.partition)
        return True

    def _swap(self, move: LogDirMove) -> None:
        partition, source = move.partition, move.source
        key = (partition.topic, partition.partition_id)
        del self._moves[key]
        try:
            partition.switch_log(self._manager.futures.replace(key))
        except StorageError:
            self._on_ended(partition)
            raise
        self._on_ended(partition)
        _log.info(
            "replica move completed", partition=partition.name, source=source.log_dir, target=partition.log.log_dir
        )
        # Last: if the old directory fails now, the replica stays online in the new one.
        self._manager.removal.discard(source, after_names_in=partition.log.log_dir)
