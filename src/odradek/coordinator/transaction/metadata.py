"""The state of one transactional id, and the states that follow it. `machine` decides the transitions.

Transactions of version 2 (KIP-890) bump the producer's epoch at each end, so that late requests of one transaction do
not affect the next: in a Prepare state `producer_epoch` is the bumped epoch, which the markers have. No client gets
epoch 32767, which is reserved for the marker of a producer's last transaction.

A kept transaction (KIP-939) has two identities. `producer_id` and `producer_epoch` are those of its records, by which
an external coordinator identifies it. `next_producer_id` and `next_producer_epoch` are those of the client that took
the transaction over, and can only end it. Each client that keeps it gets a later epoch, which fences the one before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from odradek.common.topic_names import TopicPartition
from odradek.coordinator.transaction.state import ENDING, TRANSITIONS, TransactionState

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
# As `last_producer_epoch`: the previous producer was fenced, so none of its requests counts as a retry.
FENCED_EPOCH = -2
MAX_EPOCH = 2**15 - 1
# The last epoch that a client can get.
LAST_CLIENT_EPOCH = MAX_EPOCH - 1
# As `timeout_ms`: no timeout, because an external coordinator ends the transaction (KIP-939).
NO_TIMEOUT_MS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """The state of one transactional id; times are wall-clock ms.

    Attributes:
        previous_producer_id: the producer id before the present one; a retried request may still name it.
        next_producer_id: while the transaction ends: the producer id of the next one, if the epochs of the present id
            are exhausted. While it is open: the producer id of the client that keeps it.
        next_producer_epoch: the epoch of `next_producer_id`; NO_PRODUCER_EPOCH stands for 0.
        last_producer_epoch: the epoch before the client's last request bumped it (KIP-360), or FENCED_EPOCH. It is not
            stored: NO_PRODUCER_EPOCH after a load.
        version: the transaction version: 2 if its end bumps the epoch (KIP-890), else 0.
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
        """Whether no client can get a further epoch of this producer id."""
        return self.producer_epoch >= LAST_CLIENT_EPOCH

    @property
    def is_ending(self) -> bool:
        return self.state in ENDING

    @property
    def is_kept(self) -> bool:
        """Whether a producer other than the writer has taken over the open transaction, to end it (KIP-939)."""
        return self.state is TransactionState.ONGOING and self.next_producer_id != NO_PRODUCER_ID

    @property
    def next_identity(self) -> tuple[int, int]:
        """The (producer id, epoch) of the client's next transaction, once the present end is complete."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, max(self.next_producer_epoch, 0)
        return self.producer_id, self.producer_epoch

    @property
    def client_identity(self) -> tuple[int, int]:
        """The (producer id, epoch) of the only client that is not fenced."""
        return self.next_identity if self.is_kept else (self.producer_id, self.producer_epoch)

    def initialized(
        self, *, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int, producer_id: int | None = None
    ) -> TransactionMetadata:
        """The Empty state, with a new producer id if one is given."""
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
        """The Ongoing state, with more partitions; begins a transaction if none is open."""
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
        """The open transaction, which from now on only the producer `identity` may end.

        Args:
            timeout_ms: the timeout of this transaction, from its start, and of the producer's later ones. Only a
                producer with two-phase commit may keep a transaction without a timeout.
        """
        assert self.state is TransactionState.ONGOING, f"{self.state.label} cannot be kept"
        producer_id, epoch = self.client_identity
        assert identity[0] != producer_id or identity[1] > epoch, f"{identity} was used before"
        assert timeout_ms == NO_TIMEOUT_MS or self.timeout_ms != NO_TIMEOUT_MS, (
            "only two-phase commit keeps a transaction without a timeout"
        )
        return replace(
            self,
            next_producer_id=identity[0],
            next_producer_epoch=identity[1],
            timeout_ms=timeout_ms,
            last_update_ms=now_ms,
        )

    def end_of_kept(self, *, bumps: bool) -> tuple[int, int, int]:
        """(epoch of the markers, next producer id, next producer epoch) for the end of a kept transaction.

        The markers have the client's epoch if its producer id is that of the records. Otherwise they have the epoch
        after the writer's: partitions accept any later one, since the client has written nothing.
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
        """The Prepare state of an end; its markers have `epoch`."""
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
        """The Complete state: every partition has its marker."""
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
