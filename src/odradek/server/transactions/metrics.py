"""The metrics of idempotence and transactions: producers in the logs, questions to coordinators, and coordinators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from odradek.common.metrics import Family
from odradek.coordinator.transaction.metrics import transaction_families

if TYPE_CHECKING:
    from odradek.server.context import BrokerServices

# As Kafka: a transaction may exceed its timeout by this before it counts as late.
LATE_AFTER_MS = 5 * 60_000


def exactly_once_families(services: BrokerServices) -> Iterator[Family]:
    """The metrics of producers and their transactions on this broker."""
    counter, gauge = Family.counter, Family.gauge
    coordinator, verifier = services.transactions, services.verifier
    led = [partition for partition in services.replicas if partition.is_leader]
    now_ms, max_age_ms = services.clock.now_ms(), coordinator.config.max_timeout_ms + LATE_AFTER_MS
    yield gauge(
        "odradek_producer_ids",
        "Producer ids with state in the partitions led here (Kafka: ProducerIdCount).",
        sum(len(partition.log.producers.producers) for partition in led),
    )
    yield gauge(
        "odradek_partitions_with_late_transactions",
        "Partitions led here with a transaction that should have ended long ago, as `odradek transactions "
        "find-hanging` finds (Kafka: PartitionsWithLateTransactionsCount).",
        sum(partition.log.producers.has_late_transaction(now_ms, max_age_ms) for partition in led),
    )
    yield counter(
        "odradek_transaction_verifications",
        "Verifications whether a partition belongs to a transaction.",
        verifier.verification_count,
    )
    yield counter(
        "odradek_transaction_verification_failures",
        "Verifications that failed (Kafka: VerificationFailureRate).",
        verifier.failed_count,
    )
    yield counter(
        "odradek_transaction_verification_seconds",
        "Time that all verifications took together (Kafka: VerificationTimeMs).",
        verifier.verification_ms / 1000,
    )
    yield from transaction_families(coordinator.counts, coordinator.shards.values())
