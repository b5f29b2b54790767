"""Settings of the controller."""

from __future__ import annotations

from odradek.common.config import config, option


@config
class ControllerConfig:
    """What the controller decides by; all are Kafka's keys and defaults."""

    num_partitions: int = option(
        "num.partitions", default=1, unit="count", doc="Partitions of a new topic that does not say how many it wants."
    )
    default_replication_factor: int = option(
        "default.replication.factor", default=1, unit="count", doc="Copies of a new topic that does not say how many."
    )
    delete_topic_enable: bool = option("delete.topic.enable", default=True, doc="Whether topics can be deleted at all.")
    min_insync_replicas: int = option(
        "min.insync.replicas",
        default=1,
        unit="count",
        doc="Replicas that must have a record before acks=all is answered, where neither topic nor cluster says.",
    )
    unclean_leader_election_enable: bool = option(
        "unclean.leader.election.enable",
        topic_key="unclean.leader.election.enable",
        default=False,
        doc="Let a replica lead that may lack acknowledged records, when no other is left.",
    )
    broker_session_timeout_ms: int = option(
        "broker.session.timeout.ms", default=9000, unit="ms", doc="Fence a broker that was silent for so long."
    )
    auto_leader_rebalance_enable: bool = option(
        "auto.leader.rebalance.enable",
        default=True,
        doc="Give leadership back to preferred leaders from time to time.",
    )
    leader_imbalance_check_interval_seconds: int = option(
        "leader.imbalance.check.interval.seconds",
        default=300,
        unit="s",
        doc="How often the controller looks for leaders that are not the preferred ones.",
    )
