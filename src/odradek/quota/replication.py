"""Which replicas are throttled: the topic settings leader. and follower.replication.throttled.replicas (KIP-73). Pure.

A list of `partition:broker`, or `*`: the partition is throttled on that broker, when it leads (or follows, for the
other setting). The rates are of brokers: leader. and follower.replication.throttled.rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"


@dataclass(frozen=True, slots=True)
class Throttled:
    """Of one replica: whether it is throttled while it leads, and while it follows."""

    as_leader: bool = False
    as_follower: bool = False


NOT_THROTTLED = Throttled()


def throttled(overrides: Mapping[str, str], partition_id: int, broker_id: int) -> Throttled:
    """What a topic's own settings say of one replica."""
    as_leader = _names(overrides.get(LEADER_REPLICAS, ""), partition_id, broker_id)
    as_follower = _names(overrides.get(FOLLOWER_REPLICAS, ""), partition_id, broker_id)
    return Throttled(as_leader, as_follower) if as_leader or as_follower else NOT_THROTTLED


def _names(text: str, partition_id: int, broker_id: int) -> bool:
    items = [item.strip() for item in text.split(",")]
    return "*" in items or f"{partition_id}:{broker_id}" in items
