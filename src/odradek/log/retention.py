"""Retention: which segments may be deleted, by the timestamps of records, by size, and by the log start offset.

Only whole segments at the front are deleted, and only below the high watermark. Ages are those of records, so a wall
clock that is set back deletes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.ports import Disk
from odradek.log.config import LogConfig
from odradek.log.files import make_durable, rename_deleted
from odradek.log.recovery import delete_snapshots_before
from odradek.log.rolling import roll
from odradek.log.segment import Segment
from odradek.log.segment_file import segment_path

if TYPE_CHECKING:
    from odradek.log.log import Log


class Deletable(NamedTuple):
    """The number of segments at the front that may be deleted; `unread` must be loaded before more is known."""

    segment_count: int
    unread: Segment | None = None


def count_deletable(
    segments: Sequence[Segment],
    ends: Sequence[int],
    config: LogConfig,
    *,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
) -> Deletable:
    """Count the segments at the front that may be deleted.

    Args:
        ends: the end offset (exclusive) of each segment.
        now_ms: wall clock.
    """
    excess = sum(segment.size_bytes for segment in segments) - config.retention_bytes
    count = 0
    for segment, end in zip(segments, ends, strict=True):
        if end > high_watermark or (segment.size_bytes == 0 and segment is segments[-1]):
            break
        is_excess = config.deletes and config.retention_bytes >= 0 and excess >= segment.size_bytes
        if not (end <= log_start_offset or is_excess):
            if not config.deletes or config.retention_ms < 0:
                break
            if not segment.indexes.newest_is_known:
                return Deletable(count, segment)
            if not _is_too_old(segment, now_ms, config.retention_ms):
                break
        excess -= segment.size_bytes
        count += 1
    return Deletable(count)


def _is_too_old(segment: Segment, now_ms: int, retention_ms: int) -> bool:
    newest = segment.indexes.max_timestamp_ms
    if newest < 0:
        newest = segment.created_ms  # its records have no timestamps
    return now_ms - newest > retention_ms


def deletable(log: Log, now_ms: int) -> Deletable:
    """The segments of a log that retention or the log start offset allows to delete."""
    return count_deletable(
        log.segments,
        [*log.segments.bases[1:], log.log_end_offset],
        log.config,
        now_ms=now_ms,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
    )


def begin_delete(log: Log, count: int, now_ms: int) -> Callable[[], list[Path] | None]:
    """Remove segments from the front of the log, and return the work that renames their files, to run off the loop.

    After a crash before the rename, retention finds the segments again. Pass the result of the work to `finish_delete`.

    Raises:
        ApiError: KAFKA_STORAGE_ERROR, no space for the new segment if all are removed. StorageError.
    """
    if count == len(log.segments):
        roll(log, now_ms)
    dropped = log.segments.drop_first(count)
    paths = [path for segment in dropped for path in segment.paths()]
    directory, base = log.directory, log.segments.bases[0]
    log.advance_log_start(max(log.log_start_offset, base))

    def job(disk: Disk) -> list[Path]:
        # The producers' state up to here must be durable before the segments are removed.
        make_durable(disk, [], [segment_path(directory, base, ".snapshot")], [directory])
        renamed = rename_deleted(disk, paths)
        delete_snapshots_before(disk, directory, base)
        return renamed

    return log.partition_dir.work(job)


def finish_delete(log: Log, renamed: list[Path] | None) -> None:
    """Remove the renamed files after file.delete.delay.ms."""
    if renamed and not log.is_detached:
        log.remove_later(renamed)


def delete_old_segments(log: Log, now_ms: int) -> int:
    """Apply retention; returns how many segments were deleted. Blocks. For tools and tests."""
    while (unread := (found := deletable(log, now_ms)).unread) is not None:
        unread.indexes.load()
    if found.segment_count:
        finish_delete(log, begin_delete(log, found.segment_count, now_ms)())
    return found.segment_count


def delete_records(log: Log, before_offset: int) -> int:
    """Advance the log start offset to `before_offset` (-1: the high watermark); returns the log start offset.

    Raises:
        ApiError: OFFSET_OUT_OF_RANGE, above the high watermark.
    """
    watermark = log.high_watermark
    offset = watermark if before_offset == -1 else before_offset
    if not 0 <= offset <= watermark:
        topic, partition_id = log.topic_partition
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"{topic}-{partition_id} is committed up to {watermark}, not {offset}"
        )
    if offset > log.log_start_offset:
        log.advance_log_start(offset)
    return log.log_start_offset
