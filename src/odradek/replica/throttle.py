"""The throttled replicas: the topic settings leader. and follower.replication.throttled.replicas (KIP-73). Pure.

A list of `partition:broker`, or `*`: the partition is throttled on that broker, when it leads (or follows, for the
other setting). The rates are of brokers: leader. and follower.replication.throttled.rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from odradek.settings.options import config, option

LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"


@dataclass(frozen=True, slots=True)
class Throttled:
    """Whether one replica is throttled while it leads, and while it follows."""

    as_leader: bool = False
    as_follower: bool = False


NOT_THROTTLED = Throttled()


@config
class ThrottleConfig:
    """The throttled replicas of a topic."""

    leader_replicas: tuple[str, ...] = option(
        topic_key=LEADER_REPLICAS,
        default=(),
        doc="Replicas (partition:broker) whose followers are throttled to leader.replication.throttled.rate.",
    )
    follower_replicas: tuple[str, ...] = option(
        topic_key=FOLLOWER_REPLICAS,
        default=(),
        doc="Replicas (partition:broker) whose fetching is throttled to follower.replication.throttled.rate.",
    )

    @classmethod
    def from_overrides(cls, overrides: Mapping[str, str]) -> ThrottleConfig:
        """The settings of a topic; both lists are empty by default."""
        return cls(_items(overrides.get(LEADER_REPLICAS, "")), _items(overrides.get(FOLLOWER_REPLICAS, "")))


def throttled(overrides: Mapping[str, str], partition_id: int, broker_id: int) -> Throttled:
    """The throttling of one replica by the topic's settings, as a leader and as a follower."""
    if not overrides:
        return NOT_THROTTLED
    topic = ThrottleConfig.from_overrides(overrides)
    as_leader = _names(topic.leader_replicas, partition_id, broker_id)
    as_follower = _names(topic.follower_replicas, partition_id, broker_id)
    return Throttled(as_leader, as_follower) if as_leader or as_follower else NOT_THROTTLED


def _items(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",")) if text else ()


def _names(items: tuple[str, ...], partition_id: int, broker_id: int) -> bool:
    return "*" in items or f"{partition_id}:{broker_id}" in items
