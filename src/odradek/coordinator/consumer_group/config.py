"""Settings of consumer groups, by Kafka's names."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.common.config import config, option

INT32_MAX = 2**31 - 1


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
        doc="The assignors that consumers may ask for, the first one for those that do not ask: uniform, range.",
    )
    session_timeout_ms: int = option(
        "group.consumer.session.timeout.ms",
        default=45_000,
        unit="ms",
        doc="A consumer not heard of for this long is removed; a group's own consumer.session.timeout.ms goes first.",
    )
    heartbeat_interval_ms: int = option(
        "group.consumer.heartbeat.interval.ms",
        default=5000,
        unit="ms",
        doc="How often consumers send heartbeats; a group's own consumer.heartbeat.interval.ms goes first.",
    )
    max_size: int = option(
        "group.consumer.max.size", default=INT32_MAX, unit="count", doc="How many consumers one group may have."
    )

    def session_timeout_of(self, overrides: Mapping[str, str]) -> int:
        """The session timeout of a group with these settings of its own."""
        return int(overrides.get("consumer.session.timeout.ms", self.session_timeout_ms))

    def heartbeat_interval_of(self, overrides: Mapping[str, str]) -> int:
        """The heartbeat interval of a group with these settings of its own."""
        return int(overrides.get("consumer.heartbeat.interval.ms", self.heartbeat_interval_ms))
