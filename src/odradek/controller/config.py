"""Settings of the controller."""

from __future__ import annotations

from odradek.settings.options import config, option


@config
class ControllerConfig:
    """The settings of the controller; all are Kafka's keys and defaults."""

    num_partitions: int = option(
        "num.partitions", default=1, unit="count", doc="Partitions of a new topic that is created without a number."
    )
    default_replication_factor: int = option(
        "default.replication.factor",
        default=1,
        unit="count",
        doc="Replicas of a new topic that is created without a replication factor.",
    )
    delete_topic_enable: bool = option("delete.topic.enable", default=True, doc="Whether topics can be deleted.")
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
        doc="Allow a replica outside the ISR to become leader as a last resort; may lose acknowledged records.",
    )
    broker_session_timeout_ms: int = option(
        "broker.session.timeout.ms", default=9000, unit="ms", doc="Fence a broker without a heartbeat for this time."
    )
    auto_leader_rebalance_enable: bool = option(
        "auto.leader.rebalance.enable",
        default=True,
        doc="Move leadership back to preferred leaders in the background.",
    )
    leader_imbalance_check_interval_seconds: int = option(
        "leader.imbalance.check.interval.seconds",
        default=300,
        unit="s",
        doc="Interval of the check for leaders that are not preferred.",
    )
