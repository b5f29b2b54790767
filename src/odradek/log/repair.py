"""Repairs a damaged range of a segment with the batches of another replica.

Damage is found when a batch is read. If undamaged batches follow, only the range between is replaced, otherwise
everything up to the segment's end. Replicas without compaction are identical below the high watermark, so the new
batches have the size of the range and are written over it; a crash during the write leaves a damaged range that is
found again. Compaction differs between replicas: if the sizes differ, the segment is rebuilt beside the old one and
swapped in, as after a cleaning. All functions here are plain, and block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.numbers import INT32_MAX
from odradek.common.ports import Buffer, Disk
from odradek.log.compaction.output import CLEANED, REPAIRED, CleanedSegment, cleaned_paths
from odradek.log.compaction.swap import replace_segments, swap_in
from odradek.log.files import FileCache
from odradek.log.recovery import reload_producers
from odradek.log.replicated import Batch, read_replicated
from odradek.log.segment import Segment
from odradek.log.verification import Damage, check_batches
from odradek.record.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, BatchHeader, crc_is_valid

if TYPE_CHECKING:
    from odradek.log.log import Log

# The most bytes that one repair replaces, and keeps in memory.
MAX_PORTION_BYTES = 32 << 20
NO_EPOCH_LIMIT = INT32_MAX


@dataclass(frozen=True, slots=True)
class CorruptRange:
    """A damaged range of a segment.

    Attributes:
        position, end_position: in bytes; the end is exclusive.
        first_offset, end_offset: the offsets of the records that belong there; the end is exclusive.
        is_open: whether the range ends with the segment, because no undamaged batch follows.
    """

    segment: Segment
    position: int
    end_position: int
    first_offset: int
    end_offset: int
    is_open: bool

    @property
    def size_bytes(self) -> int:
        return self.end_position - self.position


def find_hole(log: Log, segment: Segment, position: int) -> CorruptRange | None:
    """Find the damaged range at a position; None if an undamaged batch is there, or the segment was removed.

    The range begins earlier if the batches just before the position are damaged too.

    Args:
        position: a batch boundary, in bytes.
    Raises:
        StorageError.
    """
    if log.is_detached or segment not in log.segments or position >= segment.size_bytes:
        return None
    end_offset = log.end_of(segment)
    try:
        position, first_offset = _expected_at(segment, position, end_offset)
        whole = _batch_at(segment, position, first_offset, end_offset, exact=not log.config.compacted)
        if whole is not None and _is_continued(segment, position + whole.size_bytes, whole.last_offset + 1, end_offset):
            return None
        for candidate in _candidates(segment, position):
            found = _batch_at(segment, candidate, first_offset + 1, end_offset)
            if found is not None and _is_continued(
                segment, candidate + found.size_bytes, found.last_offset + 1, end_offset
            ):
                return CorruptRange(segment, position, candidate, first_offset, found.base_offset, is_open=False)
    except OSError as error:
        raise StorageError(log.log_dir, f"{segment.path}: {error}") from error
    return CorruptRange(segment, position, segment.size_bytes, first_offset, end_offset, is_open=True)


def matching_batches(log: Log, hole: CorruptRange, data: Buffer) -> tuple[list[Batch], bool]:
    """The batches of another replica that belong into the range, and whether they fill it.

    Args:
        data: from the batch with the range's first offset on, or the next one that exists.
    Raises:
        ApiError: CORRUPT_MESSAGE, the batches are damaged as well, or their offsets or leader epochs differ from this
            log's.
    """
    given = read_replicated(
        data, next_offset=hole.first_offset, latest_epoch=-1, leader_epoch=NO_EPOCH_LIMIT, is_empty=True
    )
    batches = [each for each in given if each[1].base_offset < hole.end_offset]
    expected = hole.first_offset
    for _, header in batches:
        gap = header.base_offset - expected
        if gap < 0 or (gap and not log.config.compacted) or header.last_offset >= hole.end_offset:
            raise _changed_error(hole, f"offsets {header.base_offset} to {header.last_offset}, expected {expected}")
        known = log.epoch_of(header.base_offset)
        if header.partition_leader_epoch != known:
            raise _changed_error(hole, f"leader epoch {header.partition_leader_epoch}, expected {known}")
        expected = header.last_offset + 1
    is_full = expected == hole.end_offset or (log.config.compacted and len(given) > len(batches))
    return batches, is_full


def overwrite(log: Log, hole: CorruptRange, batches: Sequence[Batch]) -> int:
    """Write batches over the range, from its start; returns the position behind them. Not synced.

    Raises:
        StorageError.
    """
    assert sum(len(chunk) for chunk, _ in batches) <= hole.size_bytes, "undamaged batches are never overwritten"
    segment = hole.segment
    try:
        return hole.position + segment.open_shared().file.write_at(hole.position, [chunk for chunk, _ in batches])
    except OSError as error:
        raise StorageError(log.log_dir, f"{segment.path}: {error}") from error


def rewrite_batches(disk: Disk, log: Log, hole: CorruptRange, batches: Sequence[Batch]) -> None:
    """Write a copy of the segment with these batches in the range, durably, under temporary names. May run off the loop
    for a closed segment.

    Raises:
        ApiError: CORRUPT_MESSAGE, another range is damaged too; KAFKA_STORAGE_ERROR, the disk is full. StorageError.
    """
    old = hole.segment
    try:
        twin = Segment(FileCache(disk, capacity=1), old.directory, old.base_offset, created_ms=old.created_ms)
        twin.open()
        twin.indexes.load()
        fresh = CleanedSegment(
            FileCache(disk, capacity=1),
            old.directory,
            old.base_offset,
            index_interval_bytes=log.config.index_interval_bytes,
            suffix=REPAIRED,
        )
        for header, batch in _undamaged(twin, 0, hole.position, old.base_offset):
            fresh.add(header, batch)
        for chunk, header in batches:
            fresh.add(header, bytes(chunk))
        if not hole.is_open:
            for header, batch in _undamaged(twin, hole.end_position, twin.size_bytes, hole.end_offset):
                fresh.add(header, batch)
        fresh.finish(twin.indexes.transactions.entries)
    except OSError as error:
        raise StorageError(log.log_dir, f"{old.path}: {error}") from error


def rewriting(log: Log, hole: CorruptRange, batches: Sequence[Batch]) -> Callable[[], None]:
    """Return `rewrite_batches` as work for another thread; it does nothing if the log or the segment was removed."""
    return log.partition_dir.work(
        lambda disk: rewrite_batches(disk, log, hole, batches), is_dropped=lambda: hole.segment.batches.is_dropped
    )


def install(log: Log, files: FileCache, hole: CorruptRange) -> bool:
    """Replace the segment by the copy of `rewrite_batches`; False if the segment was removed. Raises StorageError."""

    def swap() -> tuple[Segment, list[Path]]:
        names = (cleaned_paths(log.directory, hole.segment.base_offset, suffix) for suffix in (REPAIRED, CLEANED))
        for repaired, cleaned in zip(*names, strict=True):
            files.disk.rename(repaired, cleaned)  # the cleaner may have `.cleaned` files of its own
        return swap_in(files, log.directory, [hole.segment])

    return replace_segments(log, [hole.segment], swap)


def finish_repair(log: Log, hole: CorruptRange) -> None:
    """Rebuild the indexes and producers that were read without the repaired batches. Raises StorageError."""
    unreplayed_from = log.producers.unreplayed_from
    try:
        if hole.segment in log.segments:
            hole.segment.indexes.rebuild_from(hole.position, log.config.index_interval_bytes)
        if unreplayed_from is not None and unreplayed_from < hole.end_offset:
            disk = log.partition_dir.files.disk
            log.producers = reload_producers(disk, log.directory, list(log.segments), log.producers)
    except OSError as error:
        raise log.partition_dir.failed(error) from error


def _undamaged(
    segment: Segment, position: int, end_position: int, expected_offset: int
) -> Iterator[tuple[BatchHeader, bytes]]:
    for found in check_batches(segment, position=position, expected_offset=expected_offset):
        at = found.position if isinstance(found, Damage) else found[0]
        if at >= end_position:
            return
        if isinstance(found, Damage):
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{segment.path} is damaged at byte {at} as well")
        yield found[1], found[2]


def _expected_at(segment: Segment, position: int, end_offset: int) -> tuple[int, int]:
    """The position and the first offset of the damaged range around a position.

    The batches before the position determine the offset. If damage is between them and the position, the range begins
    at that damage.
    """
    segment.indexes.load()
    begin = position
    while begin > 0:
        begin = segment.indexes.offsets.boundary_before(begin - 1)
        at, offset = begin, segment.base_offset
        # Leave at least one offset for the batch at the position.
        while at < position and (header := _batch_at(segment, at, offset, end_offset - 1)) is not None:
            at, offset = at + header.size_bytes, header.last_offset + 1
        if at > begin:
            return at, offset
    return 0, segment.base_offset


def _batch_at(
    segment: Segment, position: int, first_offset: int, end_offset: int, *, exact: bool = False
) -> BatchHeader | None:
    """The header of an undamaged batch at a position with offsets in this range; None if there is none."""
    if not 0 <= position <= segment.size_bytes - HEADER_BYTES:
        return None
    file = segment.open_shared().file
    header = BatchHeader.read(file.read_at(position, HEADER_BYTES))
    size = header.batch_length + LOG_OVERHEAD_BYTES
    if header.magic != MAGIC or size < HEADER_BYTES or position + size > segment.size_bytes:
        return None
    if not first_offset <= header.base_offset <= header.last_offset < end_offset:
        return None
    if exact and header.base_offset != first_offset:
        return None
    return header if crc_is_valid(file.read_at(position, size), header) else None


def _is_continued(segment: Segment, position: int, next_offset: int, end_offset: int) -> bool:
    """Whether the next batch agrees with the offsets of this one, which no checksum covers. Damage of the next batch is
    a range of its own."""
    if position == segment.size_bytes:
        return next_offset <= end_offset
    after = _batch_at(segment, position, segment.base_offset, end_offset)
    return after is None or after.base_offset >= next_offset


def _candidates(segment: Segment, position: int) -> Iterator[int]:
    """The positions at which the next batch may begin: first by the length fields, then by the index."""
    last = position
    for at, header in segment.headers(position):
        if at > position:
            yield at
        last = at + header.size_bytes
        if last - position > MAX_PORTION_BYTES:
            break
    if last < segment.size_bytes:
        yield last
    yield from segment.indexes.offsets.positions_after(position)


def _changed_error(hole: CorruptRange, why: str) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"another replica has {why} at {hole.segment.path}")
