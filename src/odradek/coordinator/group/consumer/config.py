"""Settings of consumer groups, by Kafka's names."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.common.numbers import INT32_MAX
from odradek.settings.options import config, option


@config
class ConsumerGroupConfig:
    """The consumer protocol (KIP-848)."""

    rebalance_protocols: tuple[str, ...] = option(
        "group.coordinator.rebalance.protocols",
        default=("classic", "consumer", "streams"),
        doc="Enabled group protocols: classic always is, consumer where it is listed.",
    )
    assignors: tuple[str, ...] = option(
        "group.consumer.assignors",
        default=("uniform", "range"),
        doc="The server-side assignors, the first being the default: uniform, range, or the names of their "
        "classes in Kafka.",
    )
    migration_policy: str = option(
        "group.consumer.migration.policy",
        default="bidirectional",
        doc="Online conversion of groups: upgrade when the first member of the consumer protocol joins, downgrade "
        "when the last one leaves, bidirectional, or disabled.",
    )
    session_timeout_ms: int = option(
        "group.consumer.session.timeout.ms",
        group_key="consumer.session.timeout.ms",
        default=45_000,
        unit="ms",
        doc="A member without a heartbeat for this time is removed; the group's own consumer.session.timeout.ms "
        "has precedence.",
    )
    heartbeat_interval_ms: int = option(
        "group.consumer.heartbeat.interval.ms",
        group_key="consumer.heartbeat.interval.ms",
        default=5000,
        unit="ms",
        doc="Interval of consumers' heartbeats; the group's own consumer.heartbeat.interval.ms has precedence.",
    )
    min_session_timeout_ms: int = option(
        "group.consumer.min.session.timeout.ms",
        default=45_000,
        unit="ms",
        doc="Lower bound of consumer.session.timeout.ms.",
    )
    max_session_timeout_ms: int = option(
        "group.consumer.max.session.timeout.ms",
        default=60_000,
        unit="ms",
        doc="Upper bound of consumer.session.timeout.ms.",
    )
    min_heartbeat_interval_ms: int = option(
        "group.consumer.min.heartbeat.interval.ms",
        default=5000,
        unit="ms",
        doc="Lower bound of consumer.heartbeat.interval.ms.",
    )
    max_heartbeat_interval_ms: int = option(
        "group.consumer.max.heartbeat.interval.ms",
        default=15_000,
        unit="ms",
        doc="Upper bound of consumer.heartbeat.interval.ms.",
    )
    assignment_interval_ms: int = option(
        "group.consumer.assignment.interval.ms",
        group_key="consumer.assignment.interval.ms",
        default=1000,
        unit="ms",
        doc="Minimum time between two assignments of a group; 0 computes one for each change. The group's own "
        "consumer.assignment.interval.ms has precedence.",
    )
    min_assignment_interval_ms: int = option(
        "group.consumer.min.assignment.interval.ms",
        default=0,
        unit="ms",
        doc="Lower bound of consumer.assignment.interval.ms.",
    )
    max_assignment_interval_ms: int = option(
        "group.consumer.max.assignment.interval.ms",
        default=15_000,
        unit="ms",
        doc="Upper bound of consumer.assignment.interval.ms.",
    )
    max_size: int = option(
        "group.consumer.max.size",
        default=INT32_MAX,
        unit="count",
        doc="Maximum members of a group of the consumer protocol.",
    )

    @property
    def may_upgrade(self) -> bool:
        """Whether a classic group with members becomes a consumer group."""
        return self.migration_policy.lower() in ("upgrade", "bidirectional")

    @property
    def may_downgrade(self) -> bool:
        """Whether a consumer group whose members are all classic becomes a classic group."""
        return self.migration_policy.lower() in ("downgrade", "bidirectional")

    def session_timeout_of(self, overrides: Mapping[str, str]) -> int:
        """The session timeout of a group with these group settings, in ms.

        The broker's bounds may have changed since the group's setting was validated: they take precedence.
        """
        wanted = int(overrides.get("consumer.session.timeout.ms", self.session_timeout_ms))
        return min(max(wanted, self.min_session_timeout_ms), self.max_session_timeout_ms)

    def heartbeat_interval_of(self, overrides: Mapping[str, str]) -> int:
        """The heartbeat interval of a group with these group settings, in ms, within the broker's bounds."""
        wanted = int(overrides.get("consumer.heartbeat.interval.ms", self.heartbeat_interval_ms))
        return min(max(wanted, self.min_heartbeat_interval_ms), self.max_heartbeat_interval_ms)

    def assignment_interval_of(self, overrides: Mapping[str, str]) -> int:
        """The minimum age of an assignment of a group with these group settings, in ms, within the broker's bounds."""
        wanted = int(overrides.get("consumer.assignment.interval.ms", self.assignment_interval_ms))
        return min(max(wanted, self.min_assignment_interval_ms), self.max_assignment_interval_ms)
