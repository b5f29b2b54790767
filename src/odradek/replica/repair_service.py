"""Fetches damaged batches again from another replica, and repairs them in place.

A read that finds damage below the high watermark requests a repair (`DamageReports.on_damage`), on leaders and on
followers. The replicas are tried one after the other, in-sync ones first, with the Fetch of a consumer: followers serve
these too, up to the high watermark. The batches are verified like replicated ones, and must match the offsets and
leader epochs here. Until then readers wait as at the log end. If no replica has the batches, they get CORRUPT_MESSAGE,
and a read after a pause starts over. `log.repair` has the decisions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odradek.client.connection import Connection
from odradek.common.backoff import Backoff
from odradek.common.errors import ApiError, ErrorCode, OdradekError, StorageError
from odradek.common.log_lines import get_logger
from odradek.log.repair import (
    MAX_PORTION_BYTES,
    CorruptRange,
    find_hole,
    finish_repair,
    install,
    matching_batches,
    overwrite,
    rewriting,
)
from odradek.log.rolling import roll
from odradek.protocol.api_key import ApiKey
from odradek.protocol.codec import RecordsChunks
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.fetch_response import FetchResponse, PartitionData
from odradek.replica.fetcher_manager import FIRST_VERSION

if TYPE_CHECKING:
    from odradek.common.ports import Clock, Disk
    from odradek.log.files import FileCache
    from odradek.log.log import Log
    from odradek.log.replicated import Batch
    from odradek.log.segment import Segment
    from odradek.replica.partition import Partition

FETCH_BYTES = 4 << 20
REQUEST_TIMEOUT_S = 10.0
# After attempts that found no replica with the batches: the others may be stopped, and back in a moment.
FIRST_PAUSE_MS = 1_000
LONGEST_PAUSE_MS = 30_000
# Partitions whose damage is repaired at the same time.
MAX_AT_ONCE = 4
_log = get_logger("replica.repair")

# A replica that has just started does not know the high watermark, and one that repairs the same batches is soon ready.
PATIENCE_MS = 5_000
RETRY_S = 0.25

ConnectTo = Callable[[int], Awaitable[Connection]]


class SourceNotReadyError(OdradekError):
    """A replica returns no records at an offset, but may do so soon."""


@dataclass(slots=True)
class RepairCounts:
    """The counters of one broker: repairs, and failed attempts."""

    repaired_batches: int = 0
    repaired_bytes: int = 0
    failures: int = 0


@dataclass(slots=True)
class _FailedAttempts:
    """Attempts at one partition since its last repair."""

    pauses: Backoff = field(default_factory=lambda: Backoff(FIRST_PAUSE_MS, LONGEST_PAUSE_MS))
    next_attempt_ms: float = 0


class RepairService:
    """The repairs of one broker; one at a time for each partition."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        files: FileCache,
        *,
        broker_id: int,
        connect_to: ConnectTo,
        on_storage_failed: Callable[[StorageError], None],
    ) -> None:
        """
        Args:
            files: those of the broker's logs.
            connect_to: a connection to another broker; raises OdradekError.
            on_storage_failed: called where our disk fails.
        """
        self._disk = disk
        self._clock = clock
        self._files = files
        self._broker_id = broker_id
        self._connect_to = connect_to
        self._on_storage_failed = on_storage_failed
        self._tasks: dict[Partition, asyncio.Task[None]] = {}
        self._failed: dict[Partition, _FailedAttempts] = {}
        self._places = asyncio.Semaphore(MAX_AT_ONCE)
        self._closing = False
        self.counts = RepairCounts()

    def request(self, partition: Partition, segment: Segment, position: int) -> bool:
        """Begin the repair at a position of a segment; returns whether a repair runs."""
        if partition in self._tasks:
            return True
        if self._closing or partition.closed or not self._sources(partition):
            return False
        failed = self._failed.get(partition)
        if failed is not None and self._clock.monotonic_ms() < failed.next_attempt_ms:
            return False
        task = asyncio.get_running_loop().create_task(self._run(partition, segment, position))
        self._tasks[partition] = task
        partition.repair = task
        return True

    async def close(self) -> None:
        """Start no more repairs; ends when no task is left."""
        self._closing = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, partition: Partition, segment: Segment, position: int) -> None:
        done = False
        try:
            async with self._places:
                done = await self._repair(partition, segment, position)
        except StorageError as error:
            self._on_storage_failed(error)
        except Exception as error:  # its waiters must be released all the same
            _log.bug("a repair failed", error, partition=partition.name)
        finally:
            del self._tasks[partition]
            if done:
                self._failed.pop(partition, None)
            elif not self._closing:
                self.counts.failures += 1
                failed = self._failed.setdefault(partition, _FailedAttempts())
                failed.next_attempt_ms = self._clock.monotonic_ms() + failed.pauses.next_ms()
            partition.repair = None
            partition.wake_readers()

    async def _repair(self, partition: Partition, segment: Segment, position: int) -> bool:
        """Whether all is repaired. Raises StorageError."""
        begin = position
        while (hole := find_hole(partition.log, segment, position)) is not None:
            try:
                end = await self._fill(partition, hole)
            except ApiError as error:
                if partition.closed:
                    return False
                _log.error(
                    "no replica has an intact copy of a damaged batch",
                    partition=partition.name,
                    offset=hole.first_offset,
                    file=segment.path,
                    position=position,
                    error=error,
                )
                return False
            begin = min(begin, hole.position)
            if end is None:
                break
            # The repair filled an earlier hole; the requested one follows.
            position = max(position, end)
        partition.log.damage.mark_repaired(segment, begin)
        return True

    async def _fill(self, partition: Partition, hole: CorruptRange) -> int | None:
        """Run `_from` with the first replica that has the batches. Raises ApiError if none has; StorageError."""
        deadline_ms = self._clock.monotonic_ms() + PATIENCE_MS
        while True:
            may_come = False
            failure: OdradekError | None = None
            for source in self._sources(partition):
                try:
                    return await self._from(partition, hole, source)
                except StorageError:
                    raise
                except SourceNotReadyError as error:
                    may_come, failure = True, error
                except OdradekError as error:
                    failure = error
            if not may_come or self._clock.monotonic_ms() >= deadline_ms:
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(failure))
            await asyncio.sleep(RETRY_S)

    async def _from(self, partition: Partition, hole: CorruptRange, source: int) -> int | None:
        """Fill a hole with batches of one replica; returns the position behind it, None for a new segment.

        Raises:
            ApiError, OdradekError: that replica does not have them, or is not reached. StorageError.
        """
        log = partition.log
        batches, is_full = await self._fetch(partition, hole, source)
        size = sum(len(chunk) for chunk, _ in batches)
        if not _is_there(partition, log, hole) or hole.end_position > hole.segment.size_bytes:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.name} has changed meanwhile")
        if size == hole.size_bytes or (hole.is_open and size < hole.size_bytes and not is_full):
            end: int | None = overwrite(log, hole, batches)
            held = hole.segment.open_shared()
            await self._disk.run_blocking(log.partition_dir.work(lambda disk: held.file.sync(), by_name=False))
            if not _is_there(partition, log, hole):
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.name} has changed meanwhile")
            finish_repair(log, hole)
        elif is_full and log.config.compacted:
            if hole.segment is log.segments[-1]:
                roll(log, self._clock.now_ms())
            await self._disk.run_blocking(rewriting(log, hole, batches))
            if not _is_there(partition, log, hole) or not install(log, self._files, hole):
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.name} has changed meanwhile")
            finish_repair(log, hole)
            end = None
        else:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"broker {source} has {size} bytes for {hole.size_bytes}")
        self.counts.repaired_batches += len(batches)
        self.counts.repaired_bytes += size
        _log.warning(
            "corrupt batches repaired from a replica",
            partition=partition.name,
            source=source,
            first_offset=hole.first_offset,
            batches=len(batches),
            bytes=size,
            file=hole.segment.path,
            position=hole.position,
        )
        return end

    async def _fetch(self, partition: Partition, hole: CorruptRange, source: int) -> tuple[list[Batch], bool]:
        """The batches of a hole, and whether those are all. Raises ApiError, OdradekError."""
        connection = await self._connect_to(source)
        data = bytearray()
        offset = hole.first_offset
        try:
            while True:
                answer = await _fetch(connection, partition, offset)
                data += answer
                batches, is_full = matching_batches(partition.log, hole, bytes(data))
                if is_full:
                    return batches, True
                taken = sum(len(chunk) for chunk, _ in batches)
                offset = batches[-1][1].last_offset + 1 if batches else hole.first_offset
                if not answer:
                    raise SourceNotReadyError(f"broker {source} has nothing at offset {offset}")
                if taken > MAX_PORTION_BYTES:
                    return batches, False
                del data[taken:]
        finally:
            connection.close()

    def _sources(self, partition: Partition) -> list[int]:
        """The other replicas: the leader first, then in-sync ones."""
        order = (partition.leader_id, *partition.isr, *partition.assigned_replicas)
        return [each for each in dict.fromkeys(order) if each >= 0 and each != self._broker_id]


def _is_there(partition: Partition, log: Log, hole: CorruptRange) -> bool:
    """Whether the segment is still the partition's."""
    return not partition.closed and not log.is_detached and hole.segment in log.segments


async def _fetch(connection: Connection, partition: Partition, offset: int) -> bytes:
    """Fetch the bytes of a replica's log from the batch with an offset on; empty if it returns none.

    Raises:
        ApiError: the replica's error. OdradekError.
    """
    asked = FetchPartition(
        partition=partition.partition_id, fetch_offset=offset, current_leader_epoch=-1, partition_max_bytes=FETCH_BYTES
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=FETCH_BYTES,
        topics=[FetchTopic(topic_id=partition.topic_id, topic=partition.topic, partitions=[asked])],
        session_epoch=-1,
    )
    if connection.version_for(ApiKey.FETCH) < FIRST_VERSION:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "the broker is too old to be asked")
    response = await connection.request(request, FetchResponse, timeout_s=REQUEST_TIMEOUT_S)
    if response.error_code:
        raise ApiError(ErrorCode(response.error_code), "it answers so")
    answer: PartitionData = response.responses[0].partitions[0]
    if answer.error_code:
        raise ApiError(ErrorCode(answer.error_code), "it answers so for the partition")
    assert not isinstance(answer.records, RecordsChunks), "what was received is bytes"
    return bytes(answer.records or b"")
