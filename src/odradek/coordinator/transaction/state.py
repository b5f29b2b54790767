"""The states of a transactional id, and every transition between them.

    Empty           The producer is initialized, and has begun no transaction since.
    Ongoing         A transaction is open, and has partitions.
    PrepareCommit   The commit is in the log; markers are being written.
    PrepareAbort    The abort is in the log; markers are being written.
    CompleteCommit  Every partition has its commit marker.
    CompleteAbort   Every partition has its abort marker.
    Dead, PrepareEpochFence  Kafka has these in memory alone. Here one record fences and aborts, and one removes an
                    expired id. The names exist for the filters of ListTransactions.

| from                             | to                          | when                                              |
|----------------------------------|-----------------------------|---------------------------------------------------|
| (none), Empty, Complete*         | Empty                       | InitProducerId                                    |
| Empty, Complete*, Ongoing        | Ongoing                     | a partition is added                              |
| Ongoing                          | PrepareCommit, PrepareAbort | EndTxn                                            |
| Ongoing                          | PrepareAbort                | InitProducerId, the transaction timeout           |
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
    """The values are those of the records."""

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
