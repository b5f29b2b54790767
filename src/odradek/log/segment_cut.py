"""Cutting a segment at a batch boundary, and looking at what would be left before anything is cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from odradek.log.files import SharedFile
    from odradek.log.segment import Segment

T = TypeVar("T")


def as_if_cut_at(segment: Segment, position: int, look: Callable[[], T]) -> T:
    """What `look` finds where the batches end there (exclusive); the indexes are loaded, and know more."""
    size_bytes, segment.batches.size_bytes = segment.size_bytes, position
    segment.was_cut()
    try:
        return look()
    finally:
        segment.batches.size_bytes = size_bytes


def truncate_segment(segment: Segment, position: int, end_offset: int, held: SharedFile | None = None) -> None:
    """Cut at a batch boundary; both are exclusive ends. Batches may follow again. Raises OSError.

    Args:
        held: the open file. With it, and loaded indexes, this needs no other descriptor.
    """
    assert position <= segment.size_bytes and end_offset >= segment.base_offset, "a cut makes a segment shorter"
    segment.indexes.load()
    segment.indexes.is_sealed = False
    held = held or segment.open_shared()
    held.file.truncate(position)
    segment.batches.size_bytes = position
    segment.verification.cut(position)
    segment.indexes.truncate(end_offset, position)
    segment.was_cut()
