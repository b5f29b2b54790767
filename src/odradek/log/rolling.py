"""The end of a segment and the start of the next one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.common.errors import ApiError
from odradek.common.ports import is_disk_full, is_out_of_descriptors
from odradek.log.config import LogConfig
from odradek.log.index import INDEX_ENTRY_BYTES
from odradek.log.segment import Segment
from odradek.log.segment_file import MAX_RELATIVE_OFFSET
from odradek.record.batch import BatchHeader

if TYPE_CHECKING:
    from odradek.log.log import Log


def must_roll(
    segment: Segment, size_bytes: int, headers: Sequence[BatchHeader], config: LogConfig, *, jitter: float, now_ms: int
) -> bool:
    """Whether these batches begin a new segment. The age is that of the first record, or of the segment if records have
    no timestamps.

    Args:
        size_bytes: the size of all batches.
        jitter: the log's share of segment.jitter.ms, 0 to 1.
    """
    if headers[-1].last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
        return True
    present_bytes = segment.batches.size_bytes
    if present_bytes == 0:
        return False
    if present_bytes + size_bytes > config.segment_bytes:
        return True
    if segment.indexes.size_bytes + INDEX_ENTRY_BYTES > config.segment_index_bytes:
        return True
    first = segment.first_timestamp_ms()
    newest = max(headers[-1].max_timestamp, headers[0].max_timestamp)
    age = newest - first if first is not None and first >= 0 else now_ms - segment.created_ms
    roll_ms, jitter_ms = config.roll_ms, config.segment_jitter_ms
    if jitter_ms:
        roll_ms -= int(jitter * min(jitter_ms, roll_ms))
    return age > roll_ms


def roll(log: Log, now_ms: int) -> None:
    """Begin a new active segment at the log end, and write a producer snapshot beside it.

    Raises:
        ApiError: KAFKA_STORAGE_ERROR, no space; the log is unchanged. StorageError.
    """
    active, end = log.segments.active, log.log_end_offset
    if active.size_bytes == 0 and active.base_offset == end:
        return
    try:
        active.indexes.append_newest_timestamp()
        active.indexes.flush()
        log.flush_state.snapshot_producers(log.producers, end)
        log.segments.roll(end, now_ms)
    except OSError as error:
        if is_disk_full(error):
            raise log.partition_dir.files.no_space(log.log_dir, error) from None
        raise log.partition_dir.failed(error) from error


def roll_before(log: Log, headers: Sequence[BatchHeader], now_ms: int) -> None:
    """Begin a new active segment for these batches. Raises as `roll`."""
    if headers[-1].last_offset - log.log_end_offset > MAX_RELATIVE_OFFSET:
        # A gap of compaction: relative to the log end, the offset exceeds the range of an index (KAFKA-6264).
        advance_end_to(log, headers[0].base_offset, now_ms)
    else:
        roll(log, now_ms)


def advance_end_to(log: Log, offset: int, now_ms: int) -> None:
    """Advance the log end to `offset`, over a gap without records.

    Blocks until all records before it are durable: a start could not detect that the end of the old segment was lost.
    Raises as `roll`.
    """
    try:
        log.segments.active.sync_file_and_directory()
    except OSError as error:
        if is_out_of_descriptors(error):
            raise log.partition_dir.files.no_space(log.log_dir, error) from None
        raise log.partition_dir.failed(error) from error
    before, log.log_end_offset = log.log_end_offset, offset
    try:
        roll(log, now_ms)
    except ApiError:
        log.log_end_offset = before
        raise
    log.producers.map_end_offset = offset
