"""Verifying every batch of a segment: after a crash, before compaction, and now and then in the background."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass

from odradek.common.ports import File
from odradek.log.segment import Segment
from odradek.record.batch import HEADER_BYTES, MAGIC, BatchHeader, crc_is_valid, read_size
from odradek.record.reader import read_batches

RECOVERY_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Damage:
    """Where a segment stops making sense, and why; `overflows` where its offset is one that the index cannot count."""

    position: int
    reason: str
    overflows: bool = False


def check_batches(
    segment: Segment, *, position: int = 0, expected_offset: int, read_bytes: int = RECOVERY_READ_BYTES
) -> Iterator[tuple[int, BatchHeader, bytes] | Damage]:
    """Every batch with its bytes, verified by CRC and order of offsets; a `Damage` is the last item, if any."""
    window = _Window(segment.open_shared().file, read_bytes)
    while position < segment.size_bytes:
        head = window.at(position, HEADER_BYTES)  # less where the segment was cut meanwhile
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
            # Once more from the disk: what is damaged there stays so, a bit that flipped on the way does not.
            batch = window.read(position, size)
            if not (len(batch) == size and crc_is_valid(batch, header)):
                yield Damage(position, "the checksum does not match")
                return
        # The checksum does not cover the offset; a gap before it is what compaction leaves.
        in_order = expected_offset <= header.base_offset <= header.last_offset
        if not in_order or segment.would_overflow(header.last_offset):
            reason = f"offset {header.base_offset} follows {expected_offset - 1}"
            yield Damage(position, reason, overflows=in_order)
            return
        expected_offset = header.last_offset + 1
        yield position, header, batch
        position += size


class _Window:
    """The piece of a file that was read last."""

    def __init__(self, file: File, read_bytes: int) -> None:
        """`read_bytes`: of one read, where no more is asked for."""
        self._file = file
        self._read_bytes = read_bytes
        self._start = 0
        self._bytes = b""

    def at(self, position: int, size: int) -> bytes:
        """So many bytes, or as many as there are, behind or within those that were asked for before."""
        inside = position - self._start
        if inside + size > len(self._bytes):
            self._start, self._bytes = position, self._file.read_at(position, max(size, self._read_bytes))
            inside = 0
        return self._bytes[inside : inside + size]

    def read(self, position: int, size: int) -> bytes:
        """The same from the disk, whatever was read before."""
        self._start, self._bytes = position, self._file.read_at(position, size)
        return self._bytes


def rewrite_from(segment: Segment, position: int) -> None:
    """Write the batches from `position` on as they are, so that a sync has something to do; raises OSError.

    Each is looked at once more: a bit that flipped on the way up must not become what is stored.
    """
    file = segment.open_shared().file
    read_bytes = RECOVERY_READ_BYTES
    while position < segment.size_bytes:
        data = file.read_at(position, read_bytes)
        whole = 0
        for start, header in read_batches(data):
            whole = start + header.size_bytes
            if not crc_is_valid(data[start:whole], header):
                raise OSError(errno.EIO, "what is read is not what was verified", str(segment.path))
        if not whole:
            # A batch larger than one read: once more, with all that there is.
            if read_bytes >= segment.size_bytes:
                raise OSError(errno.EIO, "what is read is not what was verified", str(segment.path))
            read_bytes = segment.size_bytes
            continue
        position += file.write_at(position, [data[:whole]])
        read_bytes = RECOVERY_READ_BYTES
