"""A stretch of a segment that is not what was written, and the batches of another replica in its place.

Damage is found when a batch is read. Where undamaged batches go on behind it, only what lies between is exchanged;
where none is found, all up to the segment's end. Replicas that are not compacted are equal byte by byte below the high
watermark, so the new batches fit into the gap and are written over it: a crash in the middle leaves damage, as before,
which is found again. Compaction goes its own way on every replica; where the batches are of another size, the segment
is rebuilt beside the old one and takes its place as a cleaned one does. Everything here is plain and blocks.
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

# What is exchanged at once, and held in memory for it.
MAX_PORTION_BYTES = 32 << 20
NO_EPOCH_LIMIT = INT32_MAX


@dataclass(frozen=True, slots=True)
class CorruptRange:
    """Where a segment stops making sense, and where it goes on.

    Attributes:
        position, end_position: bytes; the end is exclusive.
        first_offset, end_offset: of the records that belong there; the end is exclusive.
        is_open: nothing undamaged was found behind it; it ends with the segment.
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
    """The hole at a position; None where an undamaged batch is there, or the segment is gone.

    It begins earlier where batches just before the position are damaged, too: they must be repaired first.

    Args:
        position: in bytes, where a batch should begin.
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
    """What another replica gave, as far as it belongs into the hole, and whether those are all.

    Args:
        data: from the batch on that holds the hole's first offset, or the next one that there is.
    Raises:
        ApiError: CORRUPT_MESSAGE, it is damaged as well, or is of another history than ours.
    """
    given = read_replicated(
        data, next_offset=hole.first_offset, latest_epoch=-1, leader_epoch=NO_EPOCH_LIMIT, is_empty=True
    )
    batches = [each for each in given if each[1].base_offset < hole.end_offset]
    expected = hole.first_offset
    for _, header in batches:
        gap = header.base_offset - expected
        if gap < 0 or (gap and not log.config.compacted) or header.last_offset >= hole.end_offset:
            raise _changed_error(hole, f"offsets {header.base_offset} to {header.last_offset} where {expected} is due")
        known = log.epoch_of(header.base_offset)
        if header.partition_leader_epoch != known:
            raise _changed_error(hole, f"leader epoch {header.partition_leader_epoch} where ours is {known}")
        expected = header.last_offset + 1
    is_full = expected == hole.end_offset or (log.config.compacted and len(given) > len(batches))
    return batches, is_full


def overwrite(log: Log, hole: CorruptRange, batches: Sequence[Batch]) -> int:
    """Put batches over the hole, from its start on; returns the position behind them. Not synced.

    Raises:
        StorageError.
    """
    assert sum(len(chunk) for chunk, _ in batches) <= hole.size_bytes, "what is undamaged is never written over"
    segment = hole.segment
    try:
        return hole.position + segment.open_shared().file.write_at(hole.position, [chunk for chunk, _ in batches])
    except OSError as error:
        raise StorageError(log.log_dir, f"{segment.path}: {error}") from error


def rewrite_batches(disk: Disk, log: Log, hole: CorruptRange, batches: Sequence[Batch]) -> None:
    """Rewrite the segment with these batches in the hole, under names that do not count yet; durable. May run off
    the loop, over a closed segment.

    Raises:
        ApiError: CORRUPT_MESSAGE, the segment has another hole; KAFKA_STORAGE_ERROR, the disk is full. StorageError.
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
    """`rewrite_batches` as work for another thread; it does nothing where the log or the segment goes meanwhile."""
    return log.partition_dir.work(
        lambda disk: rewrite_batches(disk, log, hole, batches), is_dropped=lambda: hole.segment.batches.is_dropped
    )


def install(log: Log, files: FileCache, hole: CorruptRange) -> bool:
    """Put what `rewrite_batches` wrote in the segment's place; False where that is gone. Raises StorageError."""

    def swap() -> tuple[Segment, list[Path]]:
        names = (cleaned_paths(log.directory, hole.segment.base_offset, suffix) for suffix in (REPAIRED, CLEANED))
        for repaired, cleaned in zip(*names, strict=True):
            files.disk.rename(repaired, cleaned)  # and not what a cleaner that is at it has made of the damaged one
        return swap_in(files, log.directory, [hole.segment])

    return replace_segments(log, [hole.segment], swap)


def finish_repair(log: Log, hole: CorruptRange) -> None:
    """Batches are where the hole was: what was read of the log without them is read again. Raises StorageError."""
    unreplayed_from = log.producers.unreplayed_from
    try:
        if hole.segment in log.segments:
            hole.segment.indexes.rebuild_behind(hole.position, log.config.index_interval_bytes)
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
    """Where a repair begins that was asked for at a position, and the offset that is due there.

    Undamaged batches that end at the position say which offset that is. Where damage lies between them and the
    position, it does not follow from them, and the repair begins at that damage.
    """
    segment.indexes.load()
    begin = position
    while begin > 0:
        begin = segment.indexes.offsets.boundary_before(begin - 1)
        at, offset = begin, segment.base_offset
        # At least one offset is left for what lies at the position.
        while at < position and (header := _batch_at(segment, at, offset, end_offset - 1)) is not None:
            at, offset = at + header.size_bytes, header.last_offset + 1
        if at > begin:
            return at, offset
    return 0, segment.base_offset


def _batch_at(
    segment: Segment, position: int, first_offset: int, end_offset: int, *, exact: bool = False
) -> BatchHeader | None:
    """The header of an undamaged batch within these offsets; None where there is none at that position."""
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
    """Whether what follows a batch agrees with its offsets, which no checksum covers; damage there is its own hole."""
    if position == segment.size_bytes:
        return next_offset <= end_offset
    after = _batch_at(segment, position, segment.base_offset, end_offset)
    return after is None or after.base_offset >= next_offset


def _candidates(segment: Segment, position: int) -> Iterator[int]:
    """Positions behind a damaged batch at which another may begin: as lengths say, then as the index knows."""
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
