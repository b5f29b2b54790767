"""The states of a transactional id, and every transition between them.

    Empty           no transaction has been begun since the producer was initialized.
    Ongoing         a transaction is open; it has partitions.
    PrepareCommit   its end is decided and in the log: markers are on their way to every partition.
    PrepareAbort    the same, for an abort.
    CompleteCommit  every partition has its marker.
    CompleteAbort   the same, for an abort.
    Dead, PrepareEpochFence  states that Kafka has in memory alone. Here a fence and the abort that follows it are one
                    record, and an id that expires is removed by one; both are known for the names in filters.

| from                             | to                          | when                                              |
|----------------------------------|-----------------------------|---------------------------------------------------|
| (none), Empty, Complete*         | Empty                       | InitProducerId                                    |
| Empty, Complete*, Ongoing        | Ongoing                     | a partition is added                              |
| Ongoing                          | PrepareCommit, PrepareAbort | EndTxn                                            |
| Ongoing                          | PrepareAbort                | InitProducerId, the transaction's time-out        |
| Ongoing                          | Ongoing                     | InitProducerId that keeps it (KIP-939)            |
| Empty, Complete*                 | PrepareAbort                | EndTxn 5 that aborts a transaction without writes |
| PrepareCommit                    | CompleteCommit              | the last marker is written                        |
| PrepareAbort                     | CompleteAbort               | the last marker is written                        |
| Empty, Complete*                 | (none)                      | transactional.id.expiration.ms                    |

Source: Kafka TransactionState; KIP-98, KIP-890, KIP-939.
"""

from __future__ import annotations

from enum import IntEnum


class TransactionState(IntEnum):
    """The number is what the log stores."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """Kafka's name on the wire: PrepareCommit."""
        return "".join(word.capitalize() for word in self.name.split("_"))


TRANSITIONS: dict[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: frozenset(
        {TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_ABORT}
    ),
    TransactionState.ONGOING: frozenset(
        {TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT}
    ),
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.COMPLETE_COMMIT}),
    TransactionState.PREPARE_ABORT: frozenset({TransactionState.COMPLETE_ABORT}),
    TransactionState.COMPLETE_COMMIT: frozenset(
        {TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_ABORT}
    ),
    TransactionState.COMPLETE_ABORT: frozenset(
        {TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_ABORT}
    ),
    TransactionState.DEAD: frozenset(),
    TransactionState.PREPARE_EPOCH_FENCE: frozenset(),
}

BY_LABEL = {state.label: state for state in TransactionState}
ENDING = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
AT_REST = (TransactionState.EMPTY, *COMPLETE)
