"""What a log remembers of each producer: its epoch, its last batches, its open transaction.

By it a retried batch is recognised and answered with its first offsets, a gap in the sequence is refused, and the last
stable offset is known. State changes only by `update`, for a batch that is in the log; `check` decides before that. A
snapshot beside each segment saves replaying the whole log at start.

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

# As many requests as a client may have in flight and still be idempotent.
WINDOW_BATCHES: Final = 5
NO_OFFSET: Final = -1
_SNAPSHOT_VERSION = 1
_HEAD = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_START = 6


class CorruptSnapshotError(Exception):
    """The file is not a producer snapshot, or was damaged."""


class BatchMetadata(NamedTuple):
    """One of a producer's last batches; sequences and offsets inclusive."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @classmethod
    def of(cls, header: BatchHeader) -> BatchMetadata:
        """What is remembered of a batch that is in the log."""
        return cls(
            header.base_sequence,
            header.last_sequence,
            header.last_offset,
            header.last_offset_delta,
            header.max_timestamp,
        )

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


class Verification:
    """That a transaction coordinator is being asked whether a producer's transaction includes this partition.

    Taken before the question and shown with the batch: a marker that comes between makes it worthless, so that a batch
    that was under way cannot open the transaction again behind its end (KIP-890). But the question may also be asked
    while the transaction before is still ending, and be answered once it has. Where every end bumps the epoch, a marker
    of the batch's own epoch is the end of that one.
    """

    __slots__ = ("is_confirmed", "producer_epoch", "seen_by_expiry", "supports_epoch_bump", "waiter_count")

    def __init__(self, producer_epoch: int = -1, *, supports_epoch_bump: bool = False) -> None:
        self.producer_epoch = producer_epoch
        self.supports_epoch_bump = supports_epoch_bump
        self.waiter_count = 0
        self.is_confirmed = False
        self.seen_by_expiry = False


# For batches of clients whose transactions are not verified.
NOT_REQUIRED: Final = Verification()
# For batches of group coordinators, which have verified the transaction themselves and give no sequence.
BY_COORDINATOR: Final = Verification()


@dataclass(slots=True)
class ProducerEntry:
    """One producer; `silent_since_ms` is monotonic, -1 where it wrote since that was last looked at.

    A log may know 100,000 of them, most with one batch: a tuple takes a tenth of what a deque does.

    Attributes:
        batches: the last ones of this epoch, by offset, no more than WINDOW_BATCHES.
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
        # First offset → producer, in the order of the log.
        self._open_transactions: dict[int, int] = {}
        # Ended, but the marker is not yet below the high watermark: (first offset, marker's offset).
        self._unreplicated: deque[tuple[int, int]] = deque()
        self.refusals = Refusals()
        self._verifications: dict[int, Verification] = {}
        # Exclusive: everything before it has been replayed into this state.
        self.map_end_offset = 0
        # Some batch from this offset on could not be replayed; None where all were.
        self.unreplayed_from: int | None = None

    # -- deciding -----------------------------------------------------------------------------------------------

    def check(self, header: BatchHeader, verification: Verification | None = NOT_REQUIRED) -> BatchMetadata | None:
        """Whether a batch of records may be appended; one that already was is returned instead.

        Args:
            verification: what the producer's transaction was verified under; a batch may do without (None) where the
                transaction is open here.
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
        self._check_transaction(header, verification)
        return None

    def _check_sequence(self, header: BatchHeader, entry: ProducerEntry | None) -> BatchMetadata | None:
        first, last = header.base_sequence, header.last_sequence
        if entry is not None and header.producer_epoch == entry.producer_epoch:
            for batch in entry.batches:
                if batch.first_sequence == first and batch.last_sequence == last:
                    return batch
        expected = _expected(entry, header.producer_epoch)
        if self.refusals:
            self.refusals.check(header, expected)
        if expected is not None and first != expected:
            raise out_of_order(header, f"{expected} must come next under epoch {header.producer_epoch}")
        return None

    def _check_transaction(self, header: BatchHeader, verification: Verification | None) -> None:
        if header.is_transactional:
            is_open = self.has_open_transaction(header.producer_id, header.producer_epoch)
            if not is_open and not self.is_verified(header.producer_id, header.producer_epoch, verification):
                raise ApiError(
                    ErrorCode.INVALID_TXN_STATE,
                    f"Producer {header.producer_id} has no verified transaction that includes this partition",
                )
            return
        entry = self.producers.get(header.producer_id)
        if entry is not None and entry.transaction_start != NO_OFFSET:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"Producer {header.producer_id} has a transaction open: it must write in it",
            )

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transaction of this epoch has records here and no end yet."""
        entry = self.producers.get(producer_id)
        return entry is not None and entry.transaction_start != NO_OFFSET and entry.producer_epoch == producer_epoch

    def begin_verification(
        self, producer_id: int, producer_epoch: int, *, supports_epoch_bump: bool = False
    ) -> Verification:
        """Before the coordinator is asked, and `end_verification` after it; who ask at the same time share one.

        Args:
            supports_epoch_bump: the producer's epoch rises with every end of a transaction (KIP-890).
        """
        verification = self._verifications.get(producer_id)
        asked = (producer_epoch, supports_epoch_bump)
        if verification is None or (verification.producer_epoch, verification.supports_epoch_bump) != asked:
            is_newest = verification is None or verification.producer_epoch <= producer_epoch
            verification = Verification(producer_epoch, supports_epoch_bump=supports_epoch_bump)
            if is_newest:
                self._verifications[producer_id] = verification
        verification.waiter_count += 1
        return verification

    def end_verification(self, producer_id: int, verification: Verification, *, is_confirmed: bool) -> None:
        """The coordinator has answered; what it denies to all who asked is not kept: anybody may invent ids."""
        verification.waiter_count -= 1
        verification.is_confirmed |= is_confirmed
        is_denied = not verification.waiter_count and not verification.is_confirmed
        if is_denied and self._verifications.get(producer_id) is verification:
            del self._verifications[producer_id]

    def is_verified(self, producer_id: int, producer_epoch: int, verification: Verification | None) -> bool:
        """Whether its transaction was not ended since `begin_verification` gave it."""
        if verification is None:
            return False
        if verification in (NOT_REQUIRED, BY_COORDINATOR):
            return True
        return self._verifications.get(producer_id) is verification and verification.producer_epoch == producer_epoch

    def forget_verification(self, producer_id: int, producer_epoch: int, transaction_version: int) -> None:
        """A marker of that epoch comes: what is being verified for the transaction must not open it again."""
        present = self._verifications.get(producer_id)
        if present is None:
            return
        is_of_the_next = present.supports_epoch_bump and transaction_version >= 2
        if not is_of_the_next or present.producer_epoch < producer_epoch:
            del self._verifications[producer_id]

    def must_write_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, transaction_version: int
    ) -> bool:
        """Whether a marker has something to end or to fence here, or was written before (KIP-890).

        Args:
            transaction_version: 2 where the marker's epoch is above that of every record of its transaction.
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
            # Written again by a coordinator of a later epoch, it fences the one before.
            return is_open or coordinator_epoch > entry.coordinator_epoch
        if is_open:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"A marker of epoch {producer_epoch} of producer {producer_id} ends no transaction of that epoch",
            )
        return False

    # -- changing -----------------------------------------------------------------------------------------------

    def note_refused(self, headers: Sequence[BatchHeader], code: ErrorCode) -> None:
        """Batches were kept out of the log, for whatever reason; what passes is remembered, as `Refusals` does it."""
        if not code.retriable:
            return
        for header in headers:
            if header.has_producer_id and header.base_sequence >= 0:
                entry = self.producers.get(header.producer_id)
                if entry is None or header.producer_epoch >= entry.producer_epoch:
                    self.refusals.note(header, _expected(entry, header.producer_epoch), code)

    def update(self, header: BatchHeader) -> None:
        """A batch of records is in the log."""
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
            if self.refusals:
                expected = advance_sequence(entry.last_sequence, 1)
                self.refusals.settle(header.producer_id, header.producer_epoch, expected)
        entry.last_timestamp_ms = header.max_timestamp
        entry.silent_since_ms = -1
        if header.is_transactional and entry.transaction_start == NO_OFFSET:
            entry.transaction_start = header.base_offset
            self._open_transactions[header.base_offset] = header.producer_id
            self._verifications.pop(header.producer_id, None)

    def restore_known_batches(self, before: ProducerState, end_offset: int) -> None:
        """Take what a state of before knows of batches below `end_offset` (exclusive) and this one, read from a damaged
        log, does not."""
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
        """Take what a state of before knows of what is in no log: who asks the coordinator, who was refused, who was
        silent since when. Both are of the same batches."""
        self.refusals, self._verifications = before.refusals, before._verifications
        for producer_id, known in before.producers.items():
            entry = self.producers.get(producer_id)
            if entry is not None:
                entry.silent_since_ms = known.silent_since_ms
                entry.coordinator_epoch = max(entry.coordinator_epoch, known.coordinator_epoch)

    def restore_dedup_window(self, batches: Sequence[BatchHeader]) -> None:
        """Put batches before a producer's oldest known one, as far as they end where that begins.

        Args:
            batches: by offset, of the log's end; those that are known already are passed over. What is before a
                control batch belongs to producers that were forgotten there.
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
        """A marker is in the log; returns the transaction where it was aborted and had records here."""
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
        # The writer of the marker knows its version, and has forgotten what was of older ones.
        self.forget_verification(header.producer_id, header.producer_epoch, 2)
        first = entry.transaction_start
        if first == NO_OFFSET:
            return None
        entry.transaction_start = NO_OFFSET
        self._open_transactions.pop(first, None)
        # One that ended earlier and began later is never the oldest any more: so the first of the queue always is.
        while self._unreplicated and self._unreplicated[-1][0] >= first:
            self._unreplicated.pop()
        self._unreplicated.append((first, header.last_offset))
        if kind is not ControlType.ABORT:
            return None
        stable = min([last_stable_offset, *self._open_transactions, header.last_offset + 1])
        return AbortedTransaction(header.producer_id, first, header.last_offset, stable)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Where the oldest transaction begins that is open, or whose end is not yet below the high watermark."""
        while self._unreplicated and self._unreplicated[0][1] < high_watermark:
            self._unreplicated.popleft()
        ended = self._unreplicated[0][0] if self._unreplicated else None
        opened = next(iter(self._open_transactions), None)
        if ended is None or opened is None:
            return opened if ended is None else ended
        return min(ended, opened)

    def open_transactions(self) -> list[ProducerEntry]:
        """The producers of open transactions, by where these begin."""
        return [self.producers[producer_id] for producer_id in self._open_transactions.values()]

    def remove_ended(self) -> None:
        """A mirror ends here: the ids before are another cluster's, and may be given here to others. Transactions that
        are open belong to producers of here: the leader has aborted those of the source."""
        self.producers = {
            producer_id: entry for producer_id, entry in self.producers.items() if entry.transaction_start != NO_OFFSET
        }

    def has_late_transaction(self, now_ms: int, max_age_ms: int) -> bool:
        """Whether a transaction is open whose producer has been silent for longer than any may last.

        Args:
            now_ms: wall clock, as the timestamps of records.
        """
        return any(
            now_ms - self.producers[producer_id].last_timestamp_ms > max_age_ms
            for producer_id in self._open_transactions.values()
        )

    def expire(self, monotonic_ms: int, expiration_ms: int) -> int:
        """Forget producers that were silent for so long and have no open transaction; returns how many.

        Silence is counted between calls, on a clock that never jumps: were a producer forgotten because the wall clock
        was set forward, its retries would be taken for new records.
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
                del self._verifications[producer_id]  # asked for so long ago that no request waits for it
            verification.seen_by_expiry = True
        self.refusals.expire()
        return len(silent)

    # -- snapshots ----------------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """The bytes of Kafka's producer snapshot file; only the last batch of each producer is kept, as there."""
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
        """The state as a snapshot up to `end_offset` (exclusive) has it. Raises CorruptSnapshotError."""
        state = cls()
        state.map_end_offset = end_offset
        if len(data) < _HEAD.size:
            raise CorruptSnapshotError("shorter than its head")
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
    """The sequence that must come next under an epoch that is not below the producer's; None where any is taken.

    Retention may have dropped what was before; but what a marker's epoch begins with is known, and a new epoch's.
    """
    if entry is None or entry.producer_epoch < 0:
        return None
    if epoch == entry.producer_epoch and entry.batches:
        return advance_sequence(entry.last_sequence, 1)
    return 0 if epoch > entry.producer_epoch or entry.coordinator_epoch >= 0 else None
