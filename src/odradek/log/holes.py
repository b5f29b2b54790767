"""Finds the batches behind a damaged range (hole), where a destroyed header hides the next batch boundary.

A replay continues behind holes, or it would lose producers and epochs of undamaged batches. The bytes are searched for
the first undamaged batch that is followed by frames with rising offsets up to a known boundary: the next one in the
index, the end of the file, or CHAIN_BYTES, which is too long for the value of a record. A value may hold batches as
well, but no frame follows the last of them. The search reads windows, and ends after SEARCH_BYTES of candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import crc32c as _crc32c

from odradek.log.segment_file import MAX_RELATIVE_OFFSET, SegmentFile
from odradek.record.batch import CRC_START, HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, BatchHeader

WINDOW_BYTES = 64 << 10
# Consecutive batches of this size are too long for the value of a record.
CHAIN_BYTES = 2 << 20
SEARCH_BYTES = 64 << 20
_MAGIC_POSITION = 16
_MAGIC = bytes([MAGIC])

# Returns the first known batch boundary behind a position; None if there is none.
BoundaryAfter = Callable[[int], int | None]


class Hole(NamedTuple):
    """A position without a whole batch.

    Attributes:
        position, end_position: in bytes; None if no whole batch was found behind it.
        offset: the first offset that is unknown, up to the next batch.
    """

    position: int
    offset: int
    end_position: int | None


OnHole = Callable[[Hole], None]


def surviving_headers(
    batches: SegmentFile, position: int, boundary_after: BoundaryAfter, on_hole: OnHole | None = None
) -> Iterator[tuple[int, BatchHeader]]:
    """As `SegmentFile.headers`, but continues behind holes. Raises OSError.

    Args:
        position: a batch boundary.
        on_hole: called with each hole, before the headers behind it.
    """
    due = batches.base_offset
    while True:
        before = last = None
        for found in batches.headers(position):
            yield found
            before, last = last, found
        before_last = due if before is None else before[1].last_offset + 1
        if last is not None:
            position, due = last[0] + last[1].size_bytes, last[1].last_offset + 1
        if position >= batches.size_bytes:
            return
        search = _Search(batches, boundary_after)
        if last is not None and not search.is_whole(*last):
            # Its length and offsets may be wrong: search behind its start.
            position, due = last[0], before_last
        end = search.next_batch(position, due)
        if on_hole is not None:
            on_hole(Hole(position, due, end))
        if end is None:
            return
        position = end


class _Search:
    """The search behind one hole."""

    def __init__(self, batches: SegmentFile, boundary_after: BoundaryAfter) -> None:
        self._batches = batches
        self._file = batches.open_shared().file
        self._boundary_after = boundary_after
        self._left_bytes = SEARCH_BYTES
        self._rejected: set[int] = set()

    def next_batch(self, hole: int, due: int) -> int | None:
        """The position of the next undamaged batch with an offset of at least `due`; None if there is none."""
        begin, size = hole + 1, self._batches.size_bytes
        while begin < size:
            boundary = self._boundary_after(begin - 1)
            stop = size if boundary is None else boundary
            for candidate in self._candidates(begin, stop):
                if self._is_confirmed(candidate, due, stop):
                    return candidate
                if self._left_bytes <= 0:
                    return None
            if boundary is None:
                return None
            first = self._frame_at(boundary, due, size)
            if first is not None and self.is_whole(boundary, first):
                return boundary
            begin = boundary + 1
        return None

    def _candidates(self, begin: int, stop: int) -> Iterator[int]:
        """The positions at which a header may begin: where the byte of the format version matches."""
        while begin + HEADER_BYTES <= stop:
            window = self._file.read_at(begin + _MAGIC_POSITION, min(WINDOW_BYTES, stop - begin - _MAGIC_POSITION))
            inside = window.find(_MAGIC)
            while inside >= 0:
                yield begin + inside
                inside = window.find(_MAGIC, inside + 1)
            if not window:
                return
            begin += len(window)

    def _is_confirmed(self, candidate: int, due: int, stop: int) -> bool:
        """Whether an undamaged batch is there, and enough frames follow it; these may be damaged inside."""
        first = self._frame_at(candidate, due, stop)
        if first is None or not self.is_whole(candidate, first):
            return False
        position, header = candidate, first
        passed: list[int] = []
        while True:
            passed.append(position)
            position, due = position + header.size_bytes, header.last_offset + 1
            if position == stop or position - candidate >= CHAIN_BYTES:
                return True
            following = None if position in self._rejected else self._frame_at(position, due, stop)
            if following is None:
                self._rejected.update(passed)
                return False
            header = following

    def _frame_at(self, position: int, due: int, stop: int) -> BatchHeader | None:
        """The header of a batch that begins there, ends by `stop` and has the offset that is due or a later one; None
        where there is none."""
        data = self._file.read_at(position, HEADER_BYTES)
        if len(data) < HEADER_BYTES or data[_MAGIC_POSITION] != MAGIC:
            return None
        header = BatchHeader.read(data)
        size = header.batch_length + LOG_OVERHEAD_BYTES
        if size < HEADER_BYTES or position + size > stop:
            return None
        if not due <= header.base_offset <= header.last_offset <= self._batches.base_offset + MAX_RELATIVE_OFFSET:
            return None
        return header

    def is_whole(self, position: int, header: BatchHeader) -> bool:
        """Whether a batch's bytes match its checksum."""
        at, end = position + CRC_START, position + header.size_bytes
        self._left_bytes -= header.size_bytes
        crc = 0
        while at < end:
            data = self._file.read_at(at, min(1 << 20, end - at))
            if not data:
                return False
            crc = _crc32c.crc32c(data, crc)
            at += len(data)
        return crc == header.crc
