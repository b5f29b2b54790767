"""Verifies bytes that are older than this process before the first read: a start does not verify below the recovery
point."""

from __future__ import annotations

from odradek.log.segment_file import SegmentFile
from odradek.record.batch import HEADER_BYTES, MAGIC, BatchHeader, crc_is_valid

# The most bytes that one read verifies and returns: half a millisecond.
CHECKED_READ_BYTES = 1 << 20


class ReadVerification:
    """The verified bytes of a segment: those from `tail_start` on, and one range before it."""

    __slots__ = ("_batches", "_stretch_end", "_stretch_start", "tail_start")

    def __init__(self, batches: SegmentFile) -> None:
        self._batches = batches
        self.tail_start = 0
        self._stretch_start = self._stretch_end = 0

    def covers(self, position: int, length: int) -> bool:
        """Whether a range before `tail_start` is verified."""
        return self._stretch_start <= position <= position + length <= self._stretch_end

    def verify(self, position: int, first: BatchHeader, length: int, offset: int, end_offset: int) -> int:
        """Verify the whole batches of a slice that begins with `first`, a batch that holds `offset` or a later one.

        Args:
            end_offset: the offset (exclusive) at which the segment ends.
        Returns:
            How many bytes may be served, at least the first batch; 0 if that is damaged.
        """
        length = min(length, max(first.size_bytes, CHECKED_READ_BYTES))
        data = memoryview(self._batches.open_shared().file.read_at(position, length))
        left_bytes = self._batches.size_bytes - position
        whole, is_damaged = _whole_batches(data, left_bytes, min(first.base_offset, offset), end_offset)
        if not whole:
            return 0
        if not self._stretch_start <= position <= self._stretch_end:
            self._stretch_start = position  # readers continue where they were; the last reader's range is kept
        self._stretch_end = position + whole
        if self._stretch_start <= self.tail_start <= self._stretch_end:
            self.tail_start = self._stretch_start
        return whole if is_damaged else length

    def truncated(self, position: int) -> None:
        """Update after a truncation: bytes behind it will be written by this process."""
        self.tail_start = min(self.tail_start, position)

    def invalidate(self) -> None:
        """Count all bytes as not verified: a repair has changed some."""
        self.tail_start, self._stretch_start, self._stretch_end = self._batches.size_bytes, 0, 0

    def verified_all(self) -> None:
        """Count all bytes as verified, after recovery."""
        self.tail_start = 0


def _whole_batches(data: memoryview, left_bytes: int, expected_offset: int, end_offset: int) -> tuple[int, bool]:
    """(bytes of undamaged batches at the front, whether damage follows them); an incomplete last batch is no damage.

    Checksums do not cover offsets: a batch after a gap whose successor has a lower offset has a wrong offset itself.
    """
    checked = before_gap = 0
    while checked + HEADER_BYTES <= len(data):
        header = BatchHeader.read(data, checked)
        end = checked + header.size_bytes
        fits = header.size_bytes >= HEADER_BYTES and end <= left_bytes and header.magic == MAGIC
        if fits and end > len(data):
            break  # incomplete because of the reader's limit
        in_order = expected_offset <= header.base_offset <= header.last_offset < end_offset
        if not (fits and in_order and crc_is_valid(data[checked:end], header)):
            went_back = fits and header.base_offset < expected_offset
            return (before_gap if went_back else checked), True
        before_gap = checked if header.base_offset > expected_offset else end
        checked, expected_offset = end, header.last_offset + 1
    return checked, False
