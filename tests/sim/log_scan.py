"""Reads the batches of one log off a disk as they come, for invariants: each byte is looked at once.

It reads what readers of the disk would see, without the product, and knows where each batch lies.
"""

from __future__ import annotations

import contextlib
import weakref
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from odradek.common.errors import ApiError
from odradek.log.log import Log
from odradek.log.segment import Segment
from odradek.record.batch import HEADER_BYTES, BatchHeader, crc_is_valid, read_size
from odradek.record.reader import read_records
from tests.sim.disk import SimDisk
from tests.sim.producer_scan import ProducerScan


@dataclass
class Scanned:
    """The position up to which one segment was read, and the positions of its batches."""

    position: int
    next_offset: int
    leader_epoch: int = -1
    base_offsets: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)


class LogScan:
    """The batches of one log in one process."""

    def __init__(self, log: Log, *, contiguous: bool, expires: bool = False) -> None:
        """`contiguous`: no offset is missing, as compaction would leave it. `expires`: producers are soon forgotten."""
        self._expires = expires
        self._log = weakref.ref(log)
        self._contiguous = contiguous
        self._cut_count = log.truncation_count
        self._segments: weakref.WeakKeyDictionary[Segment, Scanned] = weakref.WeakKeyDictionary()
        self._known: tuple[int, int, int, int] | None = None
        self._producers = ProducerScan(expires=self._expires)
        self._damaged = False
        # The base offset of the first segment behind a gap below the log start offset.
        self._whole_from = 0

    def is_of(self, log: Log) -> bool:
        return self._log() is log

    def scan(self, disk: SimDisk) -> Iterator[str]:  # noqa: C901 - one rule after the other
        """Read the new batches; yield what is wrong with them. A batch that is wrong is reported once."""
        log = self._log()
        if log is None:
            return
        known = (log.segments[0].base_offset, log.log_end_offset, log.truncation_count, log.high_watermark)
        if known == self._known and self._contiguous:
            return
        self._known = known
        if log.truncation_count != self._cut_count:
            self._cut_count = log.truncation_count
            self._segments.clear()
            self._producers = ProducerScan(expires=self._expires)
            self._whole_from = 0
        end, epoch = log.segments[0].base_offset, -1
        for segment in log.segments:
            if end < segment.base_offset <= log.log_start_offset:
                self._begin_at(segment.base_offset)
            elif segment.base_offset < end or (self._contiguous and segment.base_offset != end):
                yield f"segment {segment.base_offset} where offset {end} was to be"
            scanned = self._segments.get(segment)
            if scanned is None:
                scanned = self._segments[segment] = Scanned(0, segment.base_offset, epoch)
            if scanned.position < segment.size_bytes:
                yield from self._read(log, disk.seen(segment.path), segment, scanned)
            end, epoch = max(end, scanned.next_offset), scanned.leader_epoch
        starts = [start for _, start in log.epochs.entries()]
        if len(starts) > 1 and starts[1] < log.log_start_offset:
            yield f"epochs begin at {starts}, the log at {log.log_start_offset}"
        if end > log.log_end_offset or (self._contiguous and end != log.log_end_offset):
            yield f"the last batch ends at {end}, the log at {log.log_end_offset}"
        elif self._contiguous and not self._damaged:
            yield from self._producers.compare(log, disk, max(log.segments[0].base_offset, self._whole_from))

    def _begin_at(self, base_offset: int) -> None:
        """A loss of power brings back a deleted segment without what was never flushed; no reader could see it."""
        if base_offset > self._whole_from:
            self._whole_from = base_offset
            self._producers = ProducerScan(expires=self._expires)

    def _read(self, log: Log, data: bytearray, segment: Segment, scanned: Scanned) -> Iterator[str]:
        while scanned.position + HEADER_BYTES <= segment.size_bytes:
            at = scanned.position
            _, size = read_size(data, at)
            if size < HEADER_BYTES or at + size > segment.size_bytes:
                break
            header = BatchHeader.read(data, at)
            batch = bytes(data[at : at + size])
            if crc_is_valid(batch, header):
                self._producers.see(header, batch)
            else:
                self._damaged = True
                yield f"segment {segment.base_offset} is damaged at position {at}"
            # A link leaves one batch without a record where its source has deleted what came before.
            gap = self._contiguous and header.base_offset != scanned.next_offset and header.record_count > 0
            if header.base_offset < scanned.next_offset or gap:
                yield f"offset {header.base_offset} where {scanned.next_offset} was to be"
            has_epoch = header.record_count > 0 or header.partition_leader_epoch >= 0
            if has_epoch and header.partition_leader_epoch < scanned.leader_epoch:
                yield (
                    f"offset {header.base_offset} of leader epoch {header.partition_leader_epoch} "
                    f"behind one of {scanned.leader_epoch}"
                )
            known = log.epochs.epoch_for_offset(header.base_offset)
            if has_epoch and known != header.partition_leader_epoch and header.base_offset >= log.log_start_offset:
                place = f"offset {header.base_offset} of leader epoch {header.partition_leader_epoch}"
                yield f"{place} counts as of {known}"
            scanned.base_offsets.append(header.base_offset)
            scanned.positions.append(at)
            scanned.next_offset = max(scanned.next_offset, header.last_offset + 1)
            scanned.leader_epoch = max(scanned.leader_epoch, header.partition_leader_epoch)
            scanned.position += size
        if scanned.position != segment.size_bytes:
            left = segment.size_bytes - scanned.position
            yield f"segment {segment.base_offset} has {left} bytes behind its last batch"
            scanned.position = segment.size_bytes

    def value_at(self, disk: SimDisk, offset: int) -> bytes | None:
        """The value of the record at an offset; None if there is none, or if `scan` has not read so far."""
        log = self._log()
        for segment in log.segments if log is not None else ():
            scanned = self._segments.get(segment)
            if scanned is None or not scanned.base_offsets or not segment.base_offset <= offset < scanned.next_offset:
                continue
            at = scanned.positions[bisect_right(scanned.base_offsets, offset) - 1]
            data = disk.seen(segment.path)
            _, size = read_size(data, at)
            with contextlib.suppress(ApiError):  # damaged, which `scan` has reported
                for record in read_records(bytes(data[at : at + size])):
                    if record.offset == offset:
                        return record.value
        return None
