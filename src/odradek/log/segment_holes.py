"""Reading and truncating a segment with damaged ranges (holes)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from odradek.log.holes import Hole, OnHole

if TYPE_CHECKING:
    from odradek.log.segment import Segment
    from odradek.record.batch import BatchHeader


def headers_from(segment: Segment, offset: int, on_hole: OnHole | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each whole batch that holds `offset` or a later one, including those behind holes. Raises
    OSError.

    Args:
        on_hole: called with each hole, before the headers behind it.
    """
    found = segment.locate(offset) if segment.size_bytes else None
    if found is not None:
        return segment.indexes.surviving_headers(found[0], on_hole)
    if segment.scan_end >= segment.size_bytes:
        return iter(())
    # The header of the last batch before a hole may be damaged: verify it as well.
    walk = segment.indexes.surviving_headers(segment.indexes.offsets.position_for(offset), on_hole)
    return ((position, header) for position, header in walk if header.last_offset >= offset)


def truncation_point(segment: Segment, offset: int) -> tuple[int, int]:
    """(position, end offset) of a truncation that leaves no record at or above `offset`.

    The position is before a batch that holds records on both sides of `offset`, and before a hole that may hide some.
    """
    found = segment.locate(offset)
    if found is not None:
        position, header = found
        return position, min(offset, header.base_offset)
    if segment.scan_end >= segment.size_bytes:
        return segment.size_bytes, offset
    holes: list[Hole] = []
    for position, header in segment.indexes.surviving_headers(0, holes.append):
        if header.last_offset >= offset:
            if header.base_offset == offset or not holes or holes[-1].end_position != position:
                return position, min(offset, header.base_offset)
            break
    return holes[-1].position, min(offset, holes[-1].offset)
