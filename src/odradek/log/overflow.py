"""Splits segments whose offsets exceed the range of an index: 2³¹ - 1 behind the base offset.

Brokers before Kafka 2.0 could write them in compaction (KAFKA-6264). As in Kafka, a start moves the batches beyond the
range into new segments:

1. The new segments are written with `.cleaned` names, durably; a start after a crash removes them.
2. They are renamed to `.swap`, the last one first; from then on the next start continues at 3 (`compaction.swap`).
3. The old segment is truncated at the first of them, durably, and they get their final names.
"""

from __future__ import annotations

from pathlib import Path

from odradek.common.ports import Disk, File
from odradek.log.compaction.output import CLEANED
from odradek.log.compaction.swap import SWAP, complete_swap
from odradek.log.files import FileCache, raw_batches
from odradek.log.segment import Segment
from odradek.log.segment_file import MAX_RELATIVE_OFFSET, segment_path
from odradek.log.segment_truncation import truncate_segment

COPY_BYTES = 1 << 20


def may_overflow(segment: Segment, following: int) -> bool:
    """Whether a segment may exceed the range, judged by the next base offset; gaps of compaction are harmless."""
    return following - segment.base_offset > MAX_RELATIVE_OFFSET + 1


def split_off(
    files: FileCache, segment: Segment, position: int, *, expected_offset: int, following: int | None
) -> list[Segment] | None:
    """Create segments of the batches from a batch boundary on. Blocks.

    Checksums do not cover offsets: a first batch whose offset neither follows the batch before it nor precedes the next
    one is damaged, and no overflow.

    Args:
        expected_offset: the offset after the batch before.
        following: the base offset of the next segment, up to which batches are moved; None for the last segment.
    Returns:
        The new segments, not verified; empty if the next segment begins with these batches already. None for damage.
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
    complete_swap(disk, directory, [])
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
