"""Segments that hold more than an index can count: its offsets lie more than 2³¹ - 1 behind the segment's first.

Brokers before Kafka 2.0 could write them when they compacted (KAFKA-6264); we write none. As Kafka does at its start,
the part that cannot be counted becomes segments of its own.

1. the new segments are written under `.cleaned` names, durable; a start after a crash removes them
2. they become `.swap`, the last one first: from then on the next start goes on at 3 (`compaction.swap`)
3. the old segment is cut where the first of them begins, durably, and they get their names
"""

from __future__ import annotations

from pathlib import Path

from odradek.common.ports import Disk, File
from odradek.log.compaction.output import CLEANED
from odradek.log.compaction.swap import SWAP, settle_swap
from odradek.log.files import FileCache, raw_batches
from odradek.log.segment import Segment
from odradek.log.segment_cut import truncate_segment
from odradek.log.segment_file import MAX_RELATIVE_OFFSET, segment_path

COPY_BYTES = 1 << 20


def may_overflow(segment: Segment, following: int) -> bool:
    """Whether a segment may be too long for its index, by where the next one begins; gaps of compaction do no harm."""
    return following - segment.base_offset > MAX_RELATIVE_OFFSET + 1


def split_off(
    files: FileCache, segment: Segment, position: int, *, expected_offset: int, following: int | None
) -> list[Segment] | None:
    """Make segments of what lies from a batch boundary on; blocks.

    No checksum covers a batch's offset: one that neither follows the batch before it, nor has its place before what
    comes next, is damage and no overflow.

    Args:
        expected_offset: what would follow the batch before.
        following: base offset of the next segment, up to which batches are moved; None behind the last.
    Returns:
        The new segments, whose batches are not verified: none where the next segment begins with them already. None
        for damage.
    Raises:
        OSError: the disk failed, or is full; the next start tries again.
    """
    disk, directory = files.disk, segment.directory
    held = files.get(segment.path)
    batches = list(raw_batches(held.file, position, segment.size_bytes))
    if not batches:
        return None
    first = batches[0][1]
    bound = following if following is not None else batches[1][1].base_offset if len(batches) > 1 else -1
    if first.base_offset != expected_offset and first.last_offset >= bound:
        return None
    parts: list[tuple[int, int, int]] = []  # base offset, position, end position
    for at, header in batches:
        if following is not None and header.base_offset >= following:
            break
        end = at + header.size_bytes
        if parts and header.last_offset - parts[-1][0] <= MAX_RELATIVE_OFFSET:
            parts[-1] = (*parts[-1][:2], end)
        else:
            parts.append((header.base_offset, at, end))
    for base, begin, end in parts:
        _copy(disk, held.file, segment_path(directory, base, ".log" + CLEANED), begin, end)
    for base, _, _ in reversed(parts):
        disk.rename(segment_path(directory, base, ".log" + CLEANED), segment_path(directory, base, ".log" + SWAP))
    disk.sync_dir(directory)
    settle_swap(disk, directory, [])
    truncate_segment(segment, position, expected_offset)
    segment.sync_file_and_directory()
    made = []
    for base, _, _ in parts:
        part = Segment(files, directory, base, created_ms=segment.created_ms)
        part.open()
        made.append(part)
    return made


def _copy(disk: Disk, file: File, target: Path, position: int, end_position: int) -> None:
    into = disk.open(target, create=True)
    try:
        written = 0
        while position < end_position:
            data = file.read_at(position, min(COPY_BYTES, end_position - position))
            written += into.write_at(written, [data])
            position += len(data)
        into.sync()
    finally:
        into.close()
