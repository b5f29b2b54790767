"""Verifies the batches of a segment: after a crash, before compaction, and in the scrub."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass

from odradek.common.ports import File
from odradek.log.segment import Segment
from odradek.log.segment_file import MAX_RELATIVE_OFFSET
from odradek.record.batch import HEADER_BYTES, MAGIC, BatchHeader, crc_is_valid, read_size
from odradek.record.reader import read_batches

RECOVERY_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Damage:
    """Damage of a segment at a position; `overflows` if the offset exceeds the range of an index."""

    position: int
    reason: str
    overflows: bool = False


def check_batches(
    segment: Segment, *, position: int = 0, expected_offset: int, read_bytes: int = RECOVERY_READ_BYTES
) -> Iterator[tuple[int, BatchHeader, bytes] | Damage]:
    """Each batch with its bytes, after verification of its CRC and offsets; a `Damage` ends the iteration, if there is
    any."""
    window = _Window(segment.open_shared().file, read_bytes)
    while position < segment.size_bytes:
        head = window.at(position, HEADER_BYTES)  # shorter if the segment was truncated in the meantime
        if min(len(head), segment.size_bytes - position) < HEADER_BYTES:
            yield Damage(position, "the file ends inside a header")
            return
        _, size = read_size(head, 0)
        header = BatchHeader.read(head)
        if size < HEADER_BYTES or header.magic != MAGIC or position + size > segment.size_bytes:
            yield Damage(position, f"no whole batch: size {size}, magic {header.magic}")
            return
        batch = window.at(position, size)
        if len(batch) < size or not crc_is_valid(batch, header):
            # Read it again: an error in memory or transfer does not repeat.
            batch = window.read(position, size)
            if not (len(batch) == size and crc_is_valid(batch, header)):
                yield Damage(position, "the checksum does not match")
                return
        # The checksum does not cover the offset; gaps are valid after compaction.
        in_order = expected_offset <= header.base_offset <= header.last_offset
        if not in_order or header.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
            reason = f"offset {header.base_offset} follows {expected_offset - 1}"
            yield Damage(position, reason, overflows=in_order)
            return
        expected_offset = header.last_offset + 1
        yield position, header, batch
        position += size


class _Window:
    """The last range of a file that was read."""

    def __init__(self, file: File, read_bytes: int) -> None:
        """`read_bytes` is the size of a read, if no more is requested."""
        self._file = file
        self._read_bytes = read_bytes
        self._start = 0
        self._bytes = b""

    def at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes at a position, which is not before the previous one."""
        inside = position - self._start
        if inside + size > len(self._bytes):
            self._start, self._bytes = position, self._file.read_at(position, max(size, self._read_bytes))
            inside = 0
        return self._bytes[inside : inside + size]

    def read(self, position: int, size: int) -> bytes:
        """The bytes, read from the disk again."""
        self._start, self._bytes = position, self._file.read_at(position, size)
        return self._bytes


def rewrite_from(segment: Segment, position: int) -> None:
    """Write the batches from `position` on again, unchanged, so that the next sync writes them. Raises OSError.

    The checksum of each is verified before the write, so that an error in memory is not stored.
    """
    file = segment.open_shared().file
    read_bytes = RECOVERY_READ_BYTES
    while position < segment.size_bytes:
        data = file.read_at(position, read_bytes)
        whole = 0
        for start, header in read_batches(data):
            whole = start + header.size_bytes
            if not crc_is_valid(data[start:whole], header):
                raise OSError(errno.EIO, "the bytes differ from the verified ones", str(segment.path))
        if not whole:
            # The batch is larger than one read: read the rest of the segment.
            if read_bytes >= segment.size_bytes:
                raise OSError(errno.EIO, "the bytes differ from the verified ones", str(segment.path))
            read_bytes = segment.size_bytes
            continue
        position += file.write_at(position, [data[:whole]])
        read_bytes = RECOVERY_READ_BYTES
