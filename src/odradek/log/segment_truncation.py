"""Truncation of a segment at a batch boundary, and reading it as if it were truncated."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from odradek.log.files import SharedFile
    from odradek.log.segment import Segment

T = TypeVar("T")


def as_if_truncated_at(segment: Segment, position: int, read: Callable[[], T]) -> T:
    """Call `read` as if the segment ended at `position` (exclusive). The indexes are loaded, and are not truncated."""
    size_bytes, segment.batches.size_bytes = segment.size_bytes, position
    segment.truncated()
    try:
        return read()
    finally:
        segment.batches.size_bytes = size_bytes


def truncate_segment(segment: Segment, position: int, end_offset: int, held: SharedFile | None = None) -> None:
    """Truncate at a batch boundary (both ends exclusive); batches may be appended again. Raises OSError.

    Args:
        held: the open file. With it, and with loaded indexes, no other descriptor is needed.
    """
    assert position <= segment.size_bytes and end_offset >= segment.base_offset, "a truncation shortens the segment"
    segment.indexes.load()
    segment.indexes.is_sealed = False
    held = held or segment.open_shared()
    held.file.truncate(position)
    segment.batches.size_bytes = position
    segment.verification.truncated(position)
    segment.indexes.truncate(end_offset, position)
    segment.truncated()
