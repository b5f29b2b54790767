"""What the coordinator knows of one transactional id, and the values that follow on it. Nothing here decides.

Epochs. Transactions of version 2 (KIP-890) bump the producer's epoch with every end, so that nothing of an earlier
transaction can touch a later one: in a Prepare state `producer_epoch` is already the bumped one, which the markers
bear. An epoch of 32767 is never given to a client; it is left to the marker that ends the producer's last transaction.

A kept transaction (KIP-939) has two identities. `producer_id` and `producer_epoch` are those that its records were
written under, by which an outside coordinator knows it. The next ones are those of the client that took it over: they
end the transaction, and do nothing else. Every one that keeps it again gets a later epoch, and so fences the one
before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from odradek.common.topic_names import TopicPartition
from odradek.coordinator.transaction.state import ENDING, TRANSITIONS, TransactionState

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
# As `last_producer_epoch`: the producer before was fenced, and nothing that it sends again is answered.
FENCED_EPOCH = -2
MAX_EPOCH = 2**15 - 1
# The last epoch that a client is given.
LAST_CLIENT_EPOCH = MAX_EPOCH - 1
# As `timeout_ms`: an outside coordinator ends the transaction, however long that takes (KIP-939).
NO_TIMEOUT_MS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """One transactional id; times are wall-clock milliseconds.

    Attributes:
        previous_producer_id: the one before the id was replaced; a client may still name it when it tries again.
        next_producer_id: given out once the present end is complete, where the epochs of the present id are used up.
            Of an open transaction: of the client that keeps it, with `next_producer_epoch`.
        next_producer_epoch: NO_PRODUCER_EPOCH beside a next producer id stands for 0.
        last_producer_epoch: from which the present epoch was bumped by the client's own request (KIP-360), or
            FENCED_EPOCH; not stored, NO_PRODUCER_EPOCH where it is not known.
        version: of the transaction: 2 where its end bumps the epoch (KIP-890), else 0.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    start_ms: int = -1
    last_update_ms: int = -1
    version: int = 0

    @property
    def is_exhausted(self) -> bool:
        """Whether no further epoch of this producer id may be given to a client."""
        return self.producer_epoch >= LAST_CLIENT_EPOCH

    @property
    def is_ending(self) -> bool:
        return self.state in ENDING

    @property
    def is_kept(self) -> bool:
        """Whether another producer than its writer has taken over the open transaction, to end it (KIP-939)."""
        return self.state is TransactionState.ONGOING and self.next_producer_id != NO_PRODUCER_ID

    @property
    def next_identity(self) -> tuple[int, int]:
        """(producer id, epoch) that the client goes on with once the present end is complete."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, max(self.next_producer_epoch, 0)
        return self.producer_id, self.producer_epoch

    @property
    def client_identity(self) -> tuple[int, int]:
        """(producer id, epoch) of the one client that is not fenced."""
        return self.next_identity if self.is_kept else (self.producer_id, self.producer_epoch)

    def initialized(
        self, *, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int, producer_id: int | None = None
    ) -> TransactionMetadata:
        """Ready for a first transaction, under another producer id where one is given."""
        self._check_transition(TransactionState.EMPTY)
        rotated = producer_id is not None
        return TransactionMetadata(
            producer_id=self.producer_id if producer_id is None else producer_id,
            producer_epoch=epoch,
            timeout_ms=timeout_ms,
            previous_producer_id=self.producer_id if rotated else self.previous_producer_id,
            last_producer_epoch=last_epoch,
            last_update_ms=now_ms,
            version=self.version,
        )

    def ongoing(self, added: frozenset[TopicPartition], *, version: int, now_ms: int) -> TransactionMetadata:
        """With more partitions; begins a transaction where none is open."""
        self._check_transition(TransactionState.ONGOING)
        begun = self.state is TransactionState.ONGOING
        return replace(
            self,
            state=TransactionState.ONGOING,
            partitions=self.partitions | added if begun else added,
            start_ms=self.start_ms if begun else now_ms,
            last_update_ms=now_ms,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_PRODUCER_EPOCH,
            version=version,
        )

    def kept_by(self, identity: tuple[int, int], *, timeout_ms: int, now_ms: int) -> TransactionMetadata:
        """The open transaction, which this producer alone may end; the time-out is that of this producer from now on.

        It counts from the start of the transaction, and for those that the producer begins later. Only a producer of
        two-phase commit may keep one that has none: the id would be left without a time-out.
        """
        assert self.state is TransactionState.ONGOING, f"{self.state.label} cannot be kept"
        producer_id, epoch = self.client_identity
        assert identity[0] != producer_id or identity[1] > epoch, f"{identity} was given out"
        assert timeout_ms == NO_TIMEOUT_MS or self.timeout_ms != NO_TIMEOUT_MS, "it takes two-phase commit to keep it"
        return replace(
            self,
            next_producer_id=identity[0],
            next_producer_epoch=identity[1],
            timeout_ms=timeout_ms,
            last_update_ms=now_ms,
        )

    def end_of_kept(self, *, bumps: bool) -> tuple[int, int, int]:
        """(epoch of the markers, next producer id, its epoch) of the end of a kept transaction.

        Markers have the client's own epoch where its producer id is that of the records. No one that may end a
        transaction has written to it, so that any epoch above the writer's does for the partitions.
        """
        producer_id, epoch = self.client_identity
        follows = epoch + 1 if bumps else epoch
        if producer_id == self.producer_id:
            return follows, NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        return self.producer_epoch + 1, producer_id, follows

    def ending(
        self,
        *,
        commit: bool,
        epoch: int,
        last_epoch: int,
        version: int,
        now_ms: int,
        next_producer_id: int = NO_PRODUCER_ID,
        next_producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> TransactionMetadata:
        """Its end is decided: markers of `epoch` follow."""
        state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        self._check_transition(state)
        last_allowed = max(self.producer_epoch, self.next_producer_epoch) + 1
        assert self.producer_epoch <= epoch <= last_allowed, f"an end takes epoch {self.producer_epoch} to {epoch}"
        open_partitions = self.partitions if self.state is TransactionState.ONGOING else frozenset()
        return replace(
            self,
            state=state,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            partitions=open_partitions,
            next_producer_id=next_producer_id,
            next_producer_epoch=next_producer_epoch,
            start_ms=self.start_ms if self.state is TransactionState.ONGOING else now_ms,
            last_update_ms=now_ms,
            version=version,
        )

    def completed(self, now_ms: int) -> TransactionMetadata:
        """Every partition has its marker."""
        committed = self.state is TransactionState.PREPARE_COMMIT
        state = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
        self._check_transition(state)
        producer_id, epoch = self.next_identity
        rotated = producer_id != self.producer_id
        last_epoch = self.last_producer_epoch
        return replace(
            self,
            state=state,
            producer_id=producer_id,
            producer_epoch=epoch,
            previous_producer_id=self.producer_id if rotated else self.previous_producer_id,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_PRODUCER_EPOCH,
            last_producer_epoch=NO_PRODUCER_EPOCH if rotated and last_epoch != FENCED_EPOCH else last_epoch,
            partitions=frozenset(),
            last_update_ms=now_ms,
        )

    def _check_transition(self, state: TransactionState) -> None:
        assert state in TRANSITIONS[self.state], f"producer {self.producer_id}: {self.state.label} -> {state.label}"
