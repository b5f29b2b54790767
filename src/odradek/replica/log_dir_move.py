"""The move of a replica to another log directory of its broker: copy, report, swap (KIP-113, KIP-858).

The copy, a future replica, is filled as a follower's log: it gets whole batches at its log end, and is truncated where
the logs diverge. When it is complete, its directory is reported to the controller. Then the copy is flushed, gets the
last batches, and replaces the log. Pure: the driver does the I/O.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from odradek.common.errors import ApiError, ErrorCode
from odradek.log.follower_append import append_as_follower
from odradek.log.rolling import advance_end_to
from odradek.log.truncation import truncate_fully_and_start_at, truncate_to
from odradek.replica.following import truncation_offset

if TYPE_CHECKING:
    from odradek.log.files import FileSlice
    from odradek.log.log import Log
    from odradek.replica.partition import Partition

# The most bytes to copy in the swap, which blocks the event loop for some milliseconds.
LAST_BYTES = 4 << 20
# The copy is flushed at this interval, so that a start after a crash need not verify all of it.
FLUSH_BYTES = 64 << 20


class Stage(Enum):
    """The progress of a move: COPYING until the copy has all, REPORTING until the controller knows, then REPORTED."""

    COPYING = auto()
    REPORTING = auto()
    REPORTED = auto()


TRANSITIONS: dict[Stage, frozenset[Stage]] = {
    Stage.COPYING: frozenset({Stage.REPORTING}),
    Stage.REPORTING: frozenset({Stage.REPORTED}),
    Stage.REPORTED: frozenset(),
}


class LogDirMove:
    """One move. `partition.log` is read, `future` is written."""

    def __init__(self, partition: Partition, future: Log) -> None:
        self.partition = partition
        self.future = future
        self.stage = Stage.COPYING
        self.retry_at_ms = 0
        self.logged_failure = ""
        self._cut_count: int | None = None  # of the log, when the copy was last seen to be a prefix of it
        self._unflushed_bytes = 0

    def to_stage(self, stage: Stage) -> None:
        """Enter the next stage."""
        assert stage in TRANSITIONS[self.stage], f"{self.partition.name}: {self.stage.name} -> {stage.name}"
        self.stage = stage

    @property
    def source(self) -> Log:
        return self.partition.log

    @property
    def lag(self) -> int:
        """Offsets that the copy lacks."""
        return max(0, self.source.log_end_offset - self.future.log_end_offset)

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to move any more: the partition is gone, or its directory failed."""
        return self.partition.closed or self.source is self.future

    @property
    def wants_flush(self) -> bool:
        return self._unflushed_bytes >= FLUSH_BYTES

    def flushed(self) -> None:
        """The driver has begun a flush of all that is there."""
        self._unflushed_bytes = 0

    def begin_read(self, max_bytes: int, now_ms: int) -> tuple[int, list[FileSlice]]:
        """(token, the next bytes to copy), none if the copy is complete; the copy is truncated first where it diverges.

        Raises:
            ApiError: CORRUPT_MESSAGE, the log is damaged there. StorageError.
        """
        source, future = self.source, self.future
        if self._cut_count != source.truncation_count or not _is_within(future, source):
            _align(future, source)
            self._cut_count = source.truncation_count
        token, offset = source.truncation_count, future.log_end_offset
        assert source.log_start_offset <= offset <= source.log_end_offset, f"{self.partition.name}: {offset} is copied"
        if offset >= source.log_end_offset:
            return token, []
        chunks = source.read(offset, max_bytes=max_bytes, at_least_one=True).chunks
        if not chunks:
            advance_end_to(future, source.log_end_offset, now_ms)  # compaction took all that lay there
        return token, chunks

    def append(self, token: int, data: bytes, now_ms: int) -> int:
        """Append the read bytes, unless the log was truncated meanwhile; returns the number of bytes.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR, no space; CORRUPT_MESSAGE. StorageError.
        """
        source, future = self.source, self.future
        if token != source.truncation_count or source is future:
            return 0
        before = future.log_end_offset
        append_as_follower(future, data, now_ms=now_ms)
        if future.log_end_offset == before:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{self.partition.name} has no whole batch at offset {before}")
        end_offset = future.log_end_offset
        assert end_offset <= source.log_end_offset, f"{self.partition.name}: the copy has more, {end_offset}"
        self._unflushed_bytes += len(data)
        self._follow_marks()
        return len(data)

    def _follow_marks(self) -> None:
        source, future = self.source, self.future
        future.update_high_watermark(source.high_watermark)
        start = min(source.log_start_offset, future.high_watermark)
        if start > future.log_start_offset:
            future.advance_log_start(start)

    def finish(self, now_ms: int) -> bool:
        """Copy the rest; returns whether the copy is complete: False if much is left, or if the log is being repaired.

        Raises:
            ApiError, StorageError: as `begin_read` and `append`; OSError for an error of a read.
        """
        left = LAST_BYTES
        while True:
            token, chunks = self.begin_read(left, now_ms)
            if not chunks:
                self._follow_marks()
                assert self.lag == 0, f"{self.partition.name}: the copy lacks {self.lag}"
                return not self.partition.is_being_repaired
            data = b"".join(chunk.read() for chunk in chunks)
            left -= len(data)
            if left < 0:
                return False
            self.append(token, data, now_ms)


def _is_within(future: Log, source: Log) -> bool:
    return source.log_start_offset <= future.log_end_offset <= source.log_end_offset


def _align(future: Log, source: Log) -> None:
    """Truncate the copy where it diverges from the log; restart it if they have nothing in common.

    It also restarts if the log restarted before the copy's start, because the copy then lacks records.
    """
    while future.log_end_offset > future.log_start_offset:
        latest = future.epochs.latest_epoch
        epoch, end = source.end_offset_for_epoch(latest)
        if end < 0:
            truncate_fully_and_start_at(future, source.log_start_offset)
            return
        if epoch == latest and end >= future.log_end_offset:
            break
        truncate_to(future, truncation_offset(future, epoch, end))
    if not _is_within(future, source) or future.log_start_offset > source.log_start_offset:
        truncate_fully_and_start_at(future, source.log_start_offset)
