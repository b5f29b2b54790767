"""Segments that are removed from a log by retention, compaction or truncation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from odradek.log.files import rename_deleted

if TYPE_CHECKING:
    from odradek.log.segment import Segment


def mark_dropped(segment: Segment) -> None:
    """Mark a segment as removed from its log, and remove its files from the file cache."""
    segment.batches.is_dropped = True
    for path in segment.paths():
        segment.batches.files.invalidate(path)


def mark_deleted(segment: Segment) -> list[Path]:
    """Rename the files to `.deleted`; readers keep them open."""
    mark_dropped(segment)
    return rename_deleted(segment.batches.disk, segment.paths())
