"""Settings of consumer groups, by Kafka's names."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.common.config import config, option
from odradek.common.numbers import INT32_MAX


@config
class ConsumerGroupConfig:
    """The consumer protocol (KIP-848)."""

    rebalance_protocols: tuple[str, ...] = option(
        "group.coordinator.rebalance.protocols",
        default=("classic", "consumer", "streams"),
        doc="Which protocols of groups are served: classic always is, consumer where it is named here.",
    )
    assignors: tuple[str, ...] = option(
        "group.consumer.assignors",
        default=("uniform", "range"),
        doc="The assignors that consumers may ask for, the first one for those that do not ask: uniform, range, or "
        "the names of their classes in Kafka.",
    )
    migration_policy: str = option(
        "group.consumer.migration.policy",
        default="bidirectional",
        doc="Which groups change their protocol while members are live: upgrade, as the first consumer of the consumer "
        "protocol joins; downgrade, as the last one leaves; bidirectional, both; disabled, none.",
    )
    session_timeout_ms: int = option(
        "group.consumer.session.timeout.ms",
        group_key="consumer.session.timeout.ms",
        default=45_000,
        unit="ms",
        doc="A consumer not heard of for this long is removed; a group's own consumer.session.timeout.ms goes first.",
    )
    heartbeat_interval_ms: int = option(
        "group.consumer.heartbeat.interval.ms",
        group_key="consumer.heartbeat.interval.ms",
        default=5000,
        unit="ms",
        doc="How often consumers send heartbeats; a group's own consumer.heartbeat.interval.ms goes first.",
    )
    min_session_timeout_ms: int = option(
        "group.consumer.min.session.timeout.ms",
        default=45_000,
        unit="ms",
        doc="The smallest session timeout that a group may be given.",
    )
    max_session_timeout_ms: int = option(
        "group.consumer.max.session.timeout.ms",
        default=60_000,
        unit="ms",
        doc="The largest session timeout that a group may be given.",
    )
    min_heartbeat_interval_ms: int = option(
        "group.consumer.min.heartbeat.interval.ms",
        default=5000,
        unit="ms",
        doc="The smallest heartbeat interval that a group may be given.",
    )
    max_heartbeat_interval_ms: int = option(
        "group.consumer.max.heartbeat.interval.ms",
        default=15_000,
        unit="ms",
        doc="The largest heartbeat interval that a group may be given.",
    )
    assignment_interval_ms: int = option(
        "group.consumer.assignment.interval.ms",
        group_key="consumer.assignment.interval.ms",
        default=1000,
        unit="ms",
        doc="How long after one assignment of a group the next is made, for all that changed meanwhile; 0 makes one at "
        "once for each change. A group's own consumer.assignment.interval.ms goes first.",
    )
    min_assignment_interval_ms: int = option(
        "group.consumer.min.assignment.interval.ms",
        default=0,
        unit="ms",
        doc="The smallest interval between assignments that a group may be given.",
    )
    max_assignment_interval_ms: int = option(
        "group.consumer.max.assignment.interval.ms",
        default=15_000,
        unit="ms",
        doc="The largest interval between assignments that a group may be given.",
    )
    max_size: int = option(
        "group.consumer.max.size", default=INT32_MAX, unit="count", doc="How many consumers one group may have."
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
        """The session timeout of a group with these settings of its own, in ms.

        A broker may have been given other bounds since the group's own setting was checked: its bounds go first.
        """
        wanted = int(overrides.get("consumer.session.timeout.ms", self.session_timeout_ms))
        return min(max(wanted, self.min_session_timeout_ms), self.max_session_timeout_ms)

    def heartbeat_interval_of(self, overrides: Mapping[str, str]) -> int:
        """The heartbeat interval of a group with these settings of its own, in ms, within the broker's bounds."""
        wanted = int(overrides.get("consumer.heartbeat.interval.ms", self.heartbeat_interval_ms))
        return min(max(wanted, self.min_heartbeat_interval_ms), self.max_heartbeat_interval_ms)

    def assignment_interval_of(self, overrides: Mapping[str, str]) -> int:
        """How old an assignment of a group with these settings must be, in ms, within the broker's bounds."""
        wanted = int(overrides.get("consumer.assignment.interval.ms", self.assignment_interval_ms))
        return min(max(wanted, self.min_assignment_interval_ms), self.max_assignment_interval_ms)
