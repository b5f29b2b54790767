"""The idempotent and transactional producers of one log: epochs, last batches and open transactions.

The state detects retried batches, refuses gaps in sequence numbers, and determines the last stable offset. `check`
decides whether a batch may be appended; only `update` and the methods after it change the state, for batches that are
in the log. A snapshot beside each segment saves a replay of the whole log at start.

Source: KIP-98, KIP-360; Kafka ProducerStateManager, ProducerAppendInfo.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import crc32c as _crc32c

from odradek.common.errors import ApiError, ErrorCode
from odradek.log.index import AbortedTransaction
from odradek.log.refusals import Refusals, out_of_order
from odradek.record.batch import BatchHeader, advance_sequence
from odradek.record.control import ControlType

# The most requests in flight of an idempotent producer.
WINDOW_BATCHES: Final = 5
NO_OFFSET: Final = -1
_SNAPSHOT_VERSION = 1
_HEAD = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_START = 6


class CorruptSnapshotError(Exception):
    """The file is no producer snapshot, or is damaged."""


class BatchMetadata(NamedTuple):
    """One of a producer's last batches; sequences and offsets are inclusive."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @classmethod
    def of(cls, header: BatchHeader) -> BatchMetadata:
        """The metadata of a batch that is in the log."""
        first, last, delta = header.base_sequence, header.last_sequence, header.last_offset_delta
        return tuple.__new__(cls, (first, last, header.base_offset + delta, delta, header.max_timestamp))

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


class Verification:
    """A pending verification: the transaction coordinator is asked whether a transaction includes this partition
    (KIP-890).

    The verification begins before the request to the coordinator, and the batch is appended under it. A marker that is
    written in between invalidates it, so that a delayed batch cannot reopen an ended transaction. The request may also
    be sent while the previous transaction is still ending. If each end bumps the epoch, a marker of the batch's own
    epoch belongs to that previous transaction, and does not invalidate the verification.
    """

    __slots__ = ("is_confirmed", "producer_epoch", "seen_by_expiry", "supports_epoch_bump", "waiter_count")

    def __init__(self, producer_epoch: int = -1, *, supports_epoch_bump: bool = False) -> None:
        self.producer_epoch = producer_epoch
        self.supports_epoch_bump = supports_epoch_bump
        self.waiter_count = 0
        self.is_confirmed = False
        self.seen_by_expiry = False


# For clients whose transactions are not verified.
NOT_REQUIRED: Final = Verification()
# For group coordinators, which verify transactions themselves and send no sequence numbers.
BY_COORDINATOR: Final = Verification()


@dataclass(slots=True)
class ProducerEntry:
    """One producer.

    A log may have 100,000 of them, most with one batch: a tuple takes a tenth of the memory of a deque.

    Attributes:
        batches: the last batches of this epoch, by offset; at most WINDOW_BATCHES.
        silent_since_ms: monotonic time of the first `expire` without a batch since; -1 if there was none.
    """

    producer_id: int
    producer_epoch: int = -1
    batches: tuple[BatchMetadata, ...] = ()
    last_timestamp_ms: int = -1
    coordinator_epoch: int = -1
    transaction_start: int = NO_OFFSET
    silent_since_ms: int = -1

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1


class ProducerState:
    """The producers of one log."""

    def __init__(self) -> None:
        self.producers: dict[int, ProducerEntry] = {}
        # First offset → producer id, in the order of the log.
        self._open_transactions: dict[int, int] = {}
        # Ended transactions whose marker is not below the high watermark: (first offset, marker's offset).
        self._unreplicated: deque[tuple[int, int]] = deque()
        self.refusals = Refusals()
        self._verifications: dict[int, Verification] = {}
        # All batches below this offset (exclusive) are part of this state.
        self.map_end_offset = 0
        # The first offset of a batch that could not be replayed; None if all were.
        self.unreplayed_from: int | None = None

    # -- deciding -----------------------------------------------------------------------------------------------

    def check(self, header: BatchHeader, verification: Verification | None = NOT_REQUIRED) -> BatchMetadata | None:
        """Check whether a batch of records may be appended.

        Args:
            verification: the verification of the producer's transaction; None is enough if the transaction is open
                here.
        Returns:
            The earlier batch that this one repeats; None for a new batch.
        Raises:
            ApiError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE.
        """
        entry = self.producers.get(header.producer_id)
        if entry is not None and header.producer_epoch < entry.producer_epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {header.producer_id} is {header.producer_epoch}, the last seen was "
                f"{entry.producer_epoch}",
            )
        if verification is not BY_COORDINATOR:
            known = self._check_sequence(header, entry)
            if known is not None:
                return known
        if header.is_transactional:
            self._check_verified(header, verification)
        elif entry is not None and entry.transaction_start != NO_OFFSET:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"Producer {header.producer_id} has a transaction open: it must write in it",
            )
        return None

    def _check_sequence(self, header: BatchHeader, entry: ProducerEntry | None) -> BatchMetadata | None:
        first = header.base_sequence
        expected = _expected(entry, header.producer_epoch)
        if first != expected and entry is not None and header.producer_epoch == entry.producer_epoch:
            for batch in entry.batches:
                if batch.first_sequence == first and batch.last_sequence == header.last_sequence:
                    return batch
        if self.refusals.by_producer:
            self.refusals.check(header, expected)
        if expected is not None and first != expected:
            raise out_of_order(header, f"{expected} must come next under epoch {header.producer_epoch}")
        return None

    def _check_verified(self, header: BatchHeader, verification: Verification | None) -> None:
        is_open = self.has_open_transaction(header.producer_id, header.producer_epoch)
        if not is_open and not self.is_verified(header.producer_id, header.producer_epoch, verification):
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"Producer {header.producer_id} has no verified transaction that includes this partition",
            )

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transaction of this producer epoch is open and has records here."""
        entry = self.producers.get(producer_id)
        return entry is not None and entry.transaction_start != NO_OFFSET and entry.producer_epoch == producer_epoch

    def begin_verification(
        self, producer_id: int, producer_epoch: int, *, supports_epoch_bump: bool = False
    ) -> Verification:
        """Begin a verification; concurrent requests of one producer share it. `end_verification` follows the response.

        Args:
            supports_epoch_bump: the producer's epoch rises with every end of a transaction (KIP-890).
        """
        verification = self._verifications.get(producer_id)
        requested = (producer_epoch, supports_epoch_bump)
        if verification is None or (verification.producer_epoch, verification.supports_epoch_bump) != requested:
            is_newest = verification is None or verification.producer_epoch <= producer_epoch
            verification = Verification(producer_epoch, supports_epoch_bump=supports_epoch_bump)
            if is_newest:
                self._verifications[producer_id] = verification
        verification.waiter_count += 1
        return verification

    def end_verification(self, producer_id: int, verification: Verification, *, is_confirmed: bool) -> None:
        """Record the coordinator's response; a denied verification is removed, because any client may send arbitrary
        ids."""
        verification.waiter_count -= 1
        verification.is_confirmed |= is_confirmed
        is_denied = not verification.waiter_count and not verification.is_confirmed
        if is_denied and self._verifications.get(producer_id) is verification:
            del self._verifications[producer_id]

    def is_verified(self, producer_id: int, producer_epoch: int, verification: Verification | None) -> bool:
        """Whether the verification still holds: no marker has ended the transaction since it began."""
        if verification is None:
            return False
        if verification in (NOT_REQUIRED, BY_COORDINATOR):
            return True
        return self._verifications.get(producer_id) is verification and verification.producer_epoch == producer_epoch

    def clear_verification(self, producer_id: int, producer_epoch: int, transaction_version: int) -> None:
        """Invalidate the pending verification of a producer, whose transaction a marker of that epoch ends."""
        present = self._verifications.get(producer_id)
        if present is None:
            return
        is_of_the_next = present.supports_epoch_bump and transaction_version >= 2
        if not is_of_the_next or present.producer_epoch < producer_epoch:
            del self._verifications[producer_id]

    def must_write_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, transaction_version: int
    ) -> bool:
        """Whether a marker ends or fences something here; False if it was written before (KIP-890).

        Args:
            transaction_version: 2 if the marker's epoch is above that of all records of its transaction.
        Raises:
            ApiError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        entry = self.producers.get(producer_id)
        if entry is None:
            return True
        if producer_epoch < entry.producer_epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"A marker of epoch {producer_epoch} of producer {producer_id}, which is at {entry.producer_epoch}",
            )
        if coordinator_epoch < entry.coordinator_epoch:
            raise ApiError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"A marker of coordinator epoch {coordinator_epoch}, the last was of {entry.coordinator_epoch}",
            )
        if producer_epoch > entry.producer_epoch:
            return True
        is_open = entry.transaction_start != NO_OFFSET
        if transaction_version < 2:
            # A repeated marker of a later coordinator epoch fences the previous coordinator.
            return is_open or coordinator_epoch > entry.coordinator_epoch
        if is_open:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"A marker of epoch {producer_epoch} of producer {producer_id} ends no transaction of that epoch",
            )
        return False

    # -- changing -----------------------------------------------------------------------------------------------

    def record_refused(self, headers: Sequence[BatchHeader], code: ErrorCode) -> None:
        """Record batches that were refused; `Refusals` keeps those with a retriable error."""
        if not code.retriable:
            return
        for header in headers:
            if header.has_producer_id and header.base_sequence >= 0:
                entry = self.producers.get(header.producer_id)
                if entry is None or header.producer_epoch >= entry.producer_epoch:
                    self.refusals.record(header, _expected(entry, header.producer_epoch), code)

    def update(self, header: BatchHeader) -> None:
        """Apply a batch of records that is in the log."""
        self.map_end_offset = header.last_offset + 1
        if not header.has_producer_id:
            return
        entry = self.producers.get(header.producer_id)
        if entry is None:
            entry = self.producers[header.producer_id] = ProducerEntry(header.producer_id)
        if header.producer_epoch != entry.producer_epoch:
            entry.producer_epoch = header.producer_epoch
            entry.batches = ()
        if header.base_sequence >= 0:
            entry.batches = (*entry.batches[-WINDOW_BATCHES + 1 :], BatchMetadata.of(header))
            if self.refusals.by_producer:
                expected = advance_sequence(entry.last_sequence, 1)
                self.refusals.resolve(header.producer_id, header.producer_epoch, expected)
        entry.last_timestamp_ms = header.max_timestamp
        entry.silent_since_ms = -1
        if header.is_transactional and entry.transaction_start == NO_OFFSET:
            entry.transaction_start = header.base_offset
            self._open_transactions[header.base_offset] = header.producer_id
            self._verifications.pop(header.producer_id, None)

    def restore_known_batches(self, before: ProducerState, end_offset: int) -> None:
        """Add the batches below `end_offset` (exclusive) that a former state had, and that this one lacks because it
        was read from a damaged log."""
        for producer_id, known in before.producers.items():
            batches = tuple(batch for batch in known.batches if batch.last_offset < end_offset)
            entry = self.producers.get(producer_id)
            if not batches or (entry is not None and entry.producer_epoch > known.producer_epoch):
                continue
            if entry is None:
                entry = self.producers[producer_id] = ProducerEntry(producer_id)
            if entry.producer_epoch < known.producer_epoch or entry.last_offset < batches[-1].last_offset:
                entry.producer_epoch, entry.batches = known.producer_epoch, batches
                entry.last_timestamp_ms = max(entry.last_timestamp_ms, batches[-1].timestamp_ms)

    def inherit_from(self, before: ProducerState) -> None:
        """Copy the state that no log stores: pending verifications, refusals, and the silence of producers. Both
        states are of the same batches."""
        self.refusals, self._verifications = before.refusals, before._verifications
        for producer_id, known in before.producers.items():
            entry = self.producers.get(producer_id)
            if entry is not None:
                entry.silent_since_ms = known.silent_since_ms
                entry.coordinator_epoch = max(entry.coordinator_epoch, known.coordinator_epoch)

    def restore_dedup_window(self, batches: Sequence[BatchHeader]) -> None:
        """Add batches before a producer's oldest known one, if their sequences are contiguous with it.

        Args:
            batches: batches from the end of the log, by offset; known ones are skipped. Those before a control batch
                belong to producers that were removed there.
        """
        for header in reversed(batches):
            if header.is_control:
                return
            entry = self.producers.get(header.producer_id)
            if entry is None or not entry.batches or len(entry.batches) == WINDOW_BATCHES:
                continue
            oldest = entry.batches[0]
            joins = advance_sequence(header.last_sequence, 1) == oldest.first_sequence
            if header.last_offset < oldest.base_offset and header.producer_epoch == entry.producer_epoch and joins:
                entry.batches = (BatchMetadata.of(header), *entry.batches)

    def end_transaction(
        self, header: BatchHeader, kind: ControlType, coordinator_epoch: int, last_stable_offset: int
    ) -> AbortedTransaction | None:
        """Apply a marker that is in the log; returns the transaction if it was aborted and has records here."""
        self.map_end_offset = header.last_offset + 1
        entry = self.producers.get(header.producer_id)
        if entry is None:
            entry = self.producers[header.producer_id] = ProducerEntry(header.producer_id)
        if header.producer_epoch > entry.producer_epoch:
            entry.batches = ()
        entry.producer_epoch = max(entry.producer_epoch, header.producer_epoch)
        entry.coordinator_epoch = max(entry.coordinator_epoch, coordinator_epoch)
        entry.last_timestamp_ms = header.max_timestamp
        entry.silent_since_ms = -1
        # The marker's writer has already invalidated verifications by the marker's real version.
        self.clear_verification(header.producer_id, header.producer_epoch, 2)
        first = entry.transaction_start
        if first == NO_OFFSET:
            return None
        entry.transaction_start = NO_OFFSET
        self._open_transactions.pop(first, None)
        # A transaction that began later and ended earlier never becomes the oldest: the first in the queue always is.
        while self._unreplicated and self._unreplicated[-1][0] >= first:
            self._unreplicated.pop()
        self._unreplicated.append((first, header.last_offset))
        if kind is not ControlType.ABORT:
            return None
        stable = min([last_stable_offset, *self._open_transactions, header.last_offset + 1])
        return AbortedTransaction(header.producer_id, first, header.last_offset, stable)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset of the oldest transaction that is open, or whose marker is not below the high watermark;
        None if there is none."""
        if not self._unreplicated and not self._open_transactions:
            return None  # most logs have no transactions
        while self._unreplicated and self._unreplicated[0][1] < high_watermark:
            self._unreplicated.popleft()
        ended = self._unreplicated[0][0] if self._unreplicated else None
        opened = next(iter(self._open_transactions), None)
        if ended is None or opened is None:
            return opened if ended is None else ended
        return min(ended, opened)

    def open_transactions(self) -> list[ProducerEntry]:
        """The producers with an open transaction, by its first offset."""
        return [self.producers[producer_id] for producer_id in self._open_transactions.values()]

    def remove_ended(self) -> None:
        """Remove the producers without an open transaction, at the end of a mirror: their ids belong to another
        cluster, and this cluster may assign the same ids. The leader has aborted the transactions of the source
        before."""
        self.producers = {
            producer_id: entry for producer_id, entry in self.producers.items() if entry.transaction_start != NO_OFFSET
        }

    def has_late_transaction(self, now_ms: int, max_age_ms: int) -> bool:
        """Whether a transaction is open whose producer has written nothing for `max_age_ms`.

        Args:
            now_ms: wall clock, as the timestamps of records.
        """
        return any(
            now_ms - self.producers[producer_id].last_timestamp_ms > max_age_ms
            for producer_id in self._open_transactions.values()
        )

    def expire(self, monotonic_ms: int, expiration_ms: int) -> int:
        """Remove the producers without an open transaction that wrote nothing for `expiration_ms`; returns how many.

        The age is measured between calls on the monotonic clock. If the wall clock were used, setting it forward would
        remove producers, and their retries would count as new records.
        """
        silent = []
        for producer_id, entry in self.producers.items():
            if entry.silent_since_ms < 0 or entry.transaction_start != NO_OFFSET:
                entry.silent_since_ms = monotonic_ms
            elif monotonic_ms - entry.silent_since_ms >= expiration_ms:
                silent.append(producer_id)
        for producer_id in silent:
            del self.producers[producer_id]
        for producer_id, verification in list(self._verifications.items()):
            if verification.seen_by_expiry:
                del self._verifications[producer_id]  # too old: no request waits for it
            verification.seen_by_expiry = True
        self.refusals.expire()
        return len(silent)

    # -- snapshots ----------------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """The content of Kafka's producer snapshot file, with the last batch of each producer, as in Kafka."""
        entries = bytearray()
        for entry in self.producers.values():
            last = entry.batches[-1] if entry.batches else BatchMetadata(-1, -1, -1, 0, entry.last_timestamp_ms)
            entries += _ENTRY.pack(
                entry.producer_id,
                entry.producer_epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                entry.last_timestamp_ms,
                entry.coordinator_epoch,
                entry.transaction_start,
            )
        body = struct.pack(">i", len(self.producers)) + entries
        return struct.pack(">hI", _SNAPSHOT_VERSION, _crc32c.crc32c(body)) + body

    @classmethod
    def from_snapshot(cls, data: bytes, end_offset: int) -> ProducerState:
        """Decode a snapshot of all batches below `end_offset` (exclusive). Raises CorruptSnapshotError."""
        state = cls()
        state.map_end_offset = end_offset
        if len(data) < _HEAD.size:
            raise CorruptSnapshotError("the file is shorter than its header")
        version, crc, count = _HEAD.unpack_from(data)
        if version != _SNAPSHOT_VERSION or crc != _crc32c.crc32c(memoryview(data)[_CRC_START:]):
            raise CorruptSnapshotError(f"version {version}, or its checksum does not match")
        if len(data) != _HEAD.size + count * _ENTRY.size:
            raise CorruptSnapshotError(f"{count} producers do not fill {len(data)} bytes")
        transactions = []
        for position in range(_HEAD.size, len(data), _ENTRY.size):
            fields = _ENTRY.unpack_from(data, position)
            producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, start = fields
            entry = ProducerEntry(producer_id, epoch)
            entry.last_timestamp_ms, entry.coordinator_epoch, entry.transaction_start = (
                timestamp,
                coordinator_epoch,
                start,
            )
            if last_offset >= 0:
                first_sequence = advance_sequence(last_sequence, -delta)
                entry.batches = (BatchMetadata(first_sequence, last_sequence, last_offset, delta, timestamp),)
            state.producers[producer_id] = entry
            if start != NO_OFFSET:
                transactions.append((start, producer_id))
        state._open_transactions = dict(sorted(transactions))
        return state


def _expected(entry: ProducerEntry | None, epoch: int) -> int | None:
    """The next sequence number under an epoch not below the producer's; None where any is valid."""
    if entry is None or entry.producer_epoch < 0:
        return None
    if epoch == entry.producer_epoch and entry.batches:
        return advance_sequence(entry.batches[-1].last_sequence, 1)
    return 0 if epoch > entry.producer_epoch or entry.coordinator_epoch >= 0 else None
