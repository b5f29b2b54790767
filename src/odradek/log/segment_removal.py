"""Segments that a log lets go: by retention, by compaction, or because their records were cut."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from odradek.log.files import rename_deleted

if TYPE_CHECKING:
    from odradek.log.segment import Segment


def forget(segment: Segment) -> None:
    """Its files are not opened by name any more."""
    segment.batches.is_dropped = True
    for path in segment.paths():
        segment.batches.files.forget(path)


def mark_deleted(segment: Segment) -> list[Path]:
    """Rename the files to `.deleted`, so that they are gone for the log and still there for readers."""
    forget(segment)
    return rename_deleted(segment.batches.disk, segment.paths())
