"""The part of a Fetch response for one partition: its offsets, and slices of files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.log.files import FileSlice
    from odradek.log.index import AbortedTransaction
    from odradek.log.log import Log


@dataclass(slots=True)
class PartitionRead:
    """Whole batches, or none if there are no new records.

    Attributes:
        diverging: (epoch, end offset) if the reader's log diverges; there are no chunks then.
    """

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    chunks: list[FileSlice] = field(default_factory=list)
    size_bytes: int = 0
    aborted_transactions: list[AbortedTransaction] | None = None
    diverging: tuple[int, int] | None = None


def nothing_of(log: Log) -> PartitionRead:
    """A read that found no record."""
    return PartitionRead(log.high_watermark, log.last_stable_offset, log.log_start_offset)
