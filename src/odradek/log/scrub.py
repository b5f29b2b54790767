"""The scrub: closed segments are verified in pieces, to find damage that occurred after the write.

Damage is repaired as if a reader had found it (`DamageReports.on_damage`). The caller decides the pace
(`server.background.scrubbing`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from odradek.common.metrics import Family
from odradek.common.ports import Disk
from odradek.log.files import FileCache
from odradek.log.segment import Segment
from odradek.log.verification import Damage, check_batches
from odradek.settings.options import config, option

if TYPE_CHECKING:
    from odradek.log.log import Log

# The size of a piece: about a millisecond of a thread.
PIECE_BYTES = 256 << 10
READ_BYTES = 128 << 10
# A smaller batch takes as long to verify as one of this size.
SMALL_BATCH_BYTES = 2 << 10


@config
class ScrubConfig:
    """Settings of the background verification of closed segments."""

    enable: bool = option(
        "odradek.log.scrub.enable", default=True, doc="Whether closed segments are verified in the background."
    )
    interval_ms: int = option(
        "odradek.log.scrub.interval.ms",
        default=86_400_000,
        unit="ms",
        doc="Pause between two passes over all closed segments.",
    )
    bytes_per_second: int = option(
        "odradek.log.scrub.bytes.per.second",
        default=4 << 20,
        unit="bytes",
        doc="Maximum bytes verified per second; a batch below 2 KiB counts as 2 KiB.",
    )


@dataclass(slots=True)
class ScrubCounts:
    """Counters since the start; `pass_bytes` and `pass_done_bytes` are of the current pass."""

    passes: int = 0
    segments: int = 0
    read_bytes: int = 0
    damaged: int = 0
    pass_bytes: int = 0
    pass_done_bytes: int = 0

    def families(self) -> Iterator[Family]:
        """The metrics."""
        counter, gauge = Family.counter, Family.gauge
        done = self.pass_done_bytes / self.pass_bytes if self.pass_bytes else 1.0
        yield counter("odradek_scrub_passes", "Completed passes over all closed segments.", self.passes)
        yield counter("odradek_scrub_segments", "Closed segments that scrubs have verified.", self.segments)
        yield counter("odradek_scrub_read_bytes", "Bytes that scrubs have verified.", self.read_bytes)
        yield counter("odradek_scrub_damage", "Places where a scrub has found damage.", self.damaged)
        yield gauge("odradek_scrub_progress", "Progress of the current or last pass: 0 to 1.", min(1.0, done))


class Piece(NamedTuple):
    """The result of verifying one piece.

    Attributes:
        cost_bytes: the bytes that count for the pace.
        damage: the damage at which the piece ended, or None.
    """

    read_bytes: int
    cost_bytes: int
    damage: Damage | None
    is_last: bool


class SegmentCheck:
    """The verification of one closed segment; its pieces run one after the other, in any thread."""

    def __init__(self, disk: Disk, log: Log, segment: Segment, *, position: int = 0, offset: int | None = None) -> None:
        """
        Args:
            position, offset: of the first batch to verify; by default the segment's first.
        Raises:
            OSError.
        """
        self._log = log
        self.segment = segment
        self.next_offset = segment.base_offset if offset is None else offset
        # Separate files: this thread must not use those of the loop.
        twin = Segment(
            FileCache(disk.hold(log.directory), capacity=1), log.directory, segment.base_offset, created_ms=0
        )
        twin.batches.size_bytes = segment.size_bytes
        self._batches = check_batches(twin, position=position, expected_offset=self.next_offset, read_bytes=READ_BYTES)

    @property
    def is_there(self) -> bool:
        """Whether the segment is still part of the log: retention, compaction or truncation may have removed it."""
        return not self._log.is_detached and self.segment in self._log.segments[:-1]

    def next_piece(self) -> Callable[[], Piece | None]:
        """Return work that verifies the next piece; its result is None if the log or segment was removed. It raises
        StorageError."""
        batches = self.segment.batches
        return self._log.partition_dir.work(
            lambda disk: self._verify(), by_name=False, is_dropped=lambda: batches.is_dropped
        )

    def _verify(self) -> Piece:
        read = cost = 0
        for found in self._batches:
            if isinstance(found, Damage):
                return Piece(read, cost, found, is_last=True)
            _, header, batch = found
            self.next_offset = header.last_offset + 1
            read += len(batch)
            cost += max(len(batch), SMALL_BATCH_BYTES)
            if cost >= PIECE_BYTES:
                return Piece(read, cost, None, is_last=False)
        return Piece(read, cost, None, is_last=True)
