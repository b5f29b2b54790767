"""Settings of the transaction coordinator, by Kafka's names."""

from __future__ import annotations

from odradek.settings.options import config, option


@config
class TransactionConfig:
    """Settings of transactional ids, and of the topic that stores them."""

    max_timeout_ms: int = option(
        "transaction.max.timeout.ms",
        default=900_000,
        unit="ms",
        doc="Upper bound of transaction.timeout.ms of producers.",
    )
    is_two_phase_served: bool = option(
        "transaction.two.phase.commit.enable",
        default=False,
        doc="Serve two-phase commit (InitProducerId 6, KIP-939): transactions that an external coordinator ends.",
    )
    id_expiration_ms: int = option(
        "transactional.id.expiration.ms",
        default=604_800_000,
        unit="ms",
        doc="Expire a transactional id without an open transaction that was not used for this time.",
    )
    abort_check_interval_ms: int = option(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        default=10_000,
        unit="ms",
        doc="Interval of the check for timed-out transactions, which are aborted.",
    )
    expiry_check_interval_ms: int = option(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        default=3_600_000,
        unit="ms",
        doc="Interval of the check for expired transactional ids.",
    )
    topic_num_partitions: int = option(
        "transaction.state.log.num.partitions",
        default=50,
        unit="count",
        doc="Partitions of the transaction topic when it is created.",
    )
    topic_replication_factor: int = option(
        "transaction.state.log.replication.factor",
        default=3,
        unit="count",
        doc="Replicas of the transaction topic when it is created.",
    )
    topic_min_isr: int = option(
        "transaction.state.log.min.isr",
        default=2,
        unit="count",
        doc="min.insync.replicas of the transaction topic when it is created.",
    )
    topic_segment_bytes: int = option(
        "transaction.state.log.segment.bytes",
        default=104_857_600,
        unit="bytes",
        doc="Segment size of the transaction topic.",
    )
