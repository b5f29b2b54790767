"""Computes a log's producers and transactions from its batches, and compares them with the broker's state.

From the batches on the disk it computes the epoch, the last batches and the open transaction of each producer, the last
stable offset, and the aborted transactions. It compares them with the state behind DescribeProducers, the broker's last
stable offset and the index of aborted transactions. A restart, a snapshot, a truncation and a move must leave them
equal on every replica.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

from odradek.log.log import Log
from odradek.log.producer_state import ProducerEntry
from odradek.log.segment import Segment
from odradek.record.batch import BatchHeader
from odradek.record.reader import read_records
from tests.sim.disk import SimDisk

# The number of batches that a client may have in flight.
WINDOW = 5
# A start reads this much of the end of a log, for the batches that a snapshot lacks: all but a producer's last one.
LOOKED_BACK_BYTES = 1 << 20
NONE = -1
ABORT, COMMIT = 0, 1
_ABORTED = struct.Struct(">hqqqq")
_CONTROL_KEY, _MARKER = struct.Struct(">hh"), struct.Struct(">hi")


@dataclass
class Producer:
    """The state of one producer, by its batches. `batches`: (first sequence, last sequence, last offset)."""

    epoch: int = NONE
    batches: tuple[tuple[int, int, int], ...] = ()
    timestamp_ms: int = NONE
    coordinator_epoch: int = NONE
    open_from: int = NONE


class ProducerScan:
    """The account of one log in one process, from where the process found it to begin."""

    def __init__(self, *, expires: bool = False) -> None:
        """`expires`: a producer without a transaction may be forgotten at any time, and begin again."""
        self._expires = expires
        self.producers: dict[int, Producer] = {}
        # (producer, first offset, marker's offset), by the marker.
        self.aborted: list[tuple[int, int, int]] = []
        # (first offset, marker's offset) of the transactions that have ended.
        self._ended: list[tuple[int, int]] = []
        self._next_offset = 0
        self._seen_bytes = 0
        # The batches that lie before it may be known as the last one of their producer alone.
        self._window_from = 0
        # Offset of a producer's batch -> its position in the log, in bytes from its start.
        self._places: dict[int, int] = {}
        # Transactions that were there at the first look: the process need not know of ends that had not reached all.
        self._found_to: int | None = None

    def see(self, header: BatchHeader, batch: bytes) -> None:
        """The next batch of the log; one that was seen before counts once."""
        if header.base_offset < self._next_offset:
            return
        if header.base_offset > self._next_offset and header.record_count:
            # The batches between were written and deleted since the last look: they may have ended or begun anything.
            # Before a batch without a record there are none: a link writes one where its source has deleted records.
            self.producers.clear()
            self._ended.clear()
        self._next_offset = header.last_offset + 1
        self._places[header.last_offset] = self._seen_bytes
        self._seen_bytes += header.size_bytes
        if header.producer_id < 0:
            if header.is_control:  # a mirror ends here: what comes is of other producers, though ids may be equal
                self.producers = {key: each for key, each in self.producers.items() if each.open_from != NONE}
            return
        producer = self.producers.setdefault(header.producer_id, Producer())
        if header.is_control:
            if header.record_count:  # else it is what cleaning has left of one
                self._see_marker(producer, header, batch)
            return
        if header.producer_epoch != producer.epoch:
            producer.epoch, producer.batches = header.producer_epoch, ()
        if header.base_sequence >= 0:
            known = (header.base_sequence, header.last_sequence, header.last_offset)
            producer.batches = (*producer.batches, known)[-WINDOW:]
        producer.timestamp_ms = header.max_timestamp
        if header.is_transactional and producer.open_from == NONE:
            producer.open_from = header.base_offset

    def _see_marker(self, producer: Producer, header: BatchHeader, batch: bytes) -> None:
        record = read_records(batch, header)[0]
        _, kind = _CONTROL_KEY.unpack_from(record.key or b"")
        if kind not in (ABORT, COMMIT):
            return
        _, coordinator_epoch = _MARKER.unpack_from(record.value or b"")
        if header.producer_epoch > producer.epoch:
            producer.epoch, producer.batches = header.producer_epoch, ()
        producer.coordinator_epoch = max(producer.coordinator_epoch, coordinator_epoch)
        producer.timestamp_ms = header.max_timestamp
        if producer.open_from == NONE:
            return
        self._ended.append((producer.open_from, header.last_offset))
        if kind == ABORT:
            self.aborted.append((header.producer_id, producer.open_from, header.last_offset))
        producer.open_from = NONE

    # -- against the broker -----------------------------------------------------------------------------------------

    def compare(self, log: Log, disk: SimDisk, base: int) -> Iterator[str]:
        """Yield the differences from the broker's state of this log. The whole log from `base` on was scanned."""
        if self._found_to is None:
            self._found_to = self._next_offset
            self._window_from = max(0, self._seen_bytes - LOOKED_BACK_BYTES)
        yield from self._compare_producers(log, base)
        yield from self._compare_stable(log, base)
        if any(segment.indexes.transactions_damaged for segment in log.segments):
            return  # it is made again when somebody asks for it
        wanted = [each for each in self.aborted if each[2] >= base and each[1] >= base]
        found = [each for segment in log.segments for each in _indexed(segment, disk) if each[1] >= base]
        if found != wanted:
            yield f"the index of aborted transactions has {_differ(found, wanted)}"

    def _compare_producers(self, log: Log, base: int) -> Iterator[str]:
        entries = log.producers.producers
        for producer_id, producer in self.producers.items():
            entry = entries.get(producer_id)
            last = producer.batches[-1][2] if producer.batches else NONE
            if entry is None:
                is_due = last >= log.log_start_offset and not self._expires
                if is_due or producer.open_from >= base:
                    yield f"producer {producer_id} has a batch at {last}, and is not known"
                continue
            known = Producer(
                entry.producer_epoch,
                tuple((each.first_sequence, each.last_sequence, each.last_offset) for each in entry.batches),
                entry.last_timestamp_ms,
                entry.coordinator_epoch,
                entry.transaction_start,
            )
            wanted = producer if base == 0 else _with_what_was_dropped(producer, known, base)
            if self._expires:
                wanted = _since_forgotten(wanted, known)
            if known != self._without_older(wanted, len(known.batches), log.log_start_offset):
                yield f"producer {producer_id} counts as {known}, its batches say {producer}"
        if base == 0:
            for producer_id in [each for each in entries if each not in self.producers]:
                yield f"producer {producer_id} is known, and no batch is its: {_short(entries[producer_id])}"

    def _without_older(self, producer: Producer, count: int, log_start: int) -> Producer:
        """The producer with so many batches, where a start does not look at those before them: they lie too far back,
        or were deleted."""
        older = producer.batches[:-count] if count else ()
        if any(last >= log_start and self._places.get(last, 0) >= self._window_from for _, _, last in older):
            return producer
        return replace(producer, batches=producer.batches[len(older) :])

    def _compare_stable(self, log: Log, base: int) -> Iterator[str]:
        opened = [each.open_from for each in self.producers.values() if each.open_from != NONE]
        if base and any(NONE < each.transaction_start < base for each in log.producers.producers.values()):
            return
        watermark = log.high_watermark
        self._ended = [each for each in self._ended if each[1] >= watermark]
        seen_ending = [start for start, end in self._ended if end >= (self._found_to or 0)]
        least = min([watermark, *opened, *(start for start, _ in self._ended)])
        most = min([watermark, *opened, *seen_ending])
        stable = log.last_stable_offset
        if not max(least, log.log_start_offset) <= max(stable, log.log_start_offset) <= max(most, log.log_start_offset):
            yield f"stable up to {stable}, the transactions say {most}, with the watermark at {watermark}"


def _since_forgotten(producer: Producer, known: Producer) -> Producer:
    """The rest of a producer that may have been forgotten before its last batches came."""
    kept = len(producer.batches) - len(known.batches)
    coordinator_epoch = NONE if known.coordinator_epoch == NONE else producer.coordinator_epoch
    return replace(producer, batches=producer.batches[max(0, kept) :], coordinator_epoch=coordinator_epoch)


def _with_what_was_dropped(producer: Producer, known: Producer, base: int) -> Producer:
    """The producer by its batches, with the facts that only dropped batches had: these are believed."""
    kept = producer.batches
    if len(kept) < WINDOW and (not kept or known.batches[-len(kept) :] == kept):
        kept = known.batches
    opened = known.open_from if NONE < known.open_from < base and producer.open_from != NONE else producer.open_from
    if producer.open_from == NONE and NONE < known.open_from < base:
        opened = known.open_from
    coordinator_epoch = max(producer.coordinator_epoch, known.coordinator_epoch)
    return Producer(producer.epoch, kept, producer.timestamp_ms, coordinator_epoch, opened)


def _indexed(segment: Segment, disk: SimDisk) -> list[tuple[int, int, int]]:
    """A segment's index of aborted transactions: as it is in memory, else as a reader would load it."""
    index = segment.indexes.transactions
    if segment.indexes.is_loaded:
        return [(each.producer_id, each.first_offset, each.last_offset) for each in index.entries]
    if not disk.exists(index.path):
        return []
    data = bytes(disk.seen(index.path))
    whole = len(data) - len(data) % _ABORTED.size
    return [(producer, first, last) for _, producer, first, last, _ in _ABORTED.iter_unpack(data[:whole])]


def _differ(found: list[tuple[int, int, int]], wanted: list[tuple[int, int, int]]) -> str:
    missing = [each for each in wanted if each not in found]
    more = [each for each in found if each not in wanted]
    return f"not {missing[:3]}, and {more[:3]} that were not aborted (producer, first offset, marker)"


def _short(entry: ProducerEntry) -> str:
    return f"epoch {entry.producer_epoch}, last offset {entry.last_offset}, open from {entry.transaction_start}"
