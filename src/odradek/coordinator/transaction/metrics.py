"""Metrics of the transaction coordinator, computed at each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.common.metrics import Family, Sample
from odradek.coordinator.transaction.state import TransactionState

if TYPE_CHECKING:
    from odradek.coordinator.transaction.service import TransactionShard

SHOWN = (
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
)


@dataclass(slots=True)
class TransactionCounts:
    """Counters of this broker's transaction coordinators since its start."""

    committed: int = 0
    aborted: int = 0
    timed_out: int = 0
    expired_ids: int = 0
    marker_retries: int = 0
    longest_load_ms: int = 0

    def ended(self, *, committed: bool) -> None:
        """Count the end of one transaction."""
        if committed:
            self.committed += 1
        else:
            self.aborted += 1


def transaction_families(counts: TransactionCounts, shards: Iterable[TransactionShard]) -> Iterator[Family]:
    """The coordinator's metrics; `shards` are all of this broker."""
    counter, gauge = Family.counter, Family.gauge
    states: Counter[TransactionState] = Counter()
    pending = 0
    for shard in shards:
        for each in shard.machine.ids.values():
            states[each.state] += 1
            if each.is_ending:
                pending += len(each.partitions)
    yield Family(
        "odradek_transactional_ids",
        "gauge",
        "Transactional ids that this broker coordinates, by state.",
        tuple(Sample(states[state], (("state", state.label),)) for state in SHOWN),
    )
    yield gauge(
        "odradek_transaction_pending_markers",
        "Partitions of ended transactions whose marker is not confirmed (Kafka: UnknownDestinationQueueSize).",
        pending,
    )
    yield counter(
        "odradek_transaction_marker_retries",
        "Times that markers were sent again (Kafka: LogAppendRetryQueueSize).",
        counts.marker_retries,
    )
    yield counter(
        "odradek_transactions_committed", "Transactions that this broker committed as coordinator.", counts.committed
    )
    yield counter(
        "odradek_transactions_aborted", "Transactions that this broker aborted as coordinator.", counts.aborted
    )
    yield counter(
        "odradek_transactions_timed_out", "Transactions that were aborted because of their timeout.", counts.timed_out
    )
    yield counter(
        "odradek_transactional_ids_expired",
        "Transactional ids removed after transactional.id.expiration.ms.",
        counts.expired_ids,
    )
    yield gauge(
        "odradek_transaction_longest_load_seconds",
        "Longest time to load a partition of __transaction_state (Kafka: partition-load-time-max).",
        counts.longest_load_ms / 1000,
    )
