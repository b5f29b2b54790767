"""The embedded consumer protocol: the subscription and the assignment in a classic member's bytes.

A subscription and an assignment are an int16 version and a body of that version; a later version than the last known
one begins with the body of that one. Source: Kafka ConsumerProtocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.common.errors import ProtocolError
from odradek.protocol.codec import decode_prefix, encode
from odradek.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from odradek.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

CONSUMER_PROTOCOL_TYPE = "consumer"
LAST_VERSION = 3

# (topic, partition id)
NamedPartitions = frozenset[tuple[str, int]]


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """All topics of the members' subscriptions; None if one of them does not parse."""
    topics: set[str] = set()
    try:
        for subscription in subscriptions:
            _version(subscription)
            # The body of version 0, with which every later one begins, is enough.
            body, _ = decode_prefix(ConsumerProtocolSubscription, subscription, 0, 2)
            topics.update(body.topics)
    except ProtocolError:
        return None
    return frozenset(topics)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Raises ProtocolError."""
    return decode_prefix(ConsumerProtocolSubscription, data, min(_version(data), LAST_VERSION), 2)[0]


def owned_partitions(subscription: ConsumerProtocolSubscription) -> NamedPartitions:
    """The partitions that the member owns by its own statement; empty if it revokes all before it joins."""
    return frozenset((each.topic, index) for each in subscription.owned_partitions for index in each.partitions)


def read_assignment(data: bytes) -> NamedPartitions:
    """The partitions of an assignment; none for empty bytes. Raises ProtocolError."""
    if not data:
        return frozenset()
    body, _ = decode_prefix(ConsumerProtocolAssignment, data, min(_version(data), LAST_VERSION), 2)
    return frozenset((each.topic, index) for each in body.assigned_partitions for index in each.partitions)


def has_user_data(assignment: bytes) -> bool:
    """Whether an assignment has user data beside partitions. Raises ProtocolError."""
    if not assignment:
        return False
    body, _ = decode_prefix(ConsumerProtocolAssignment, assignment, min(_version(assignment), LAST_VERSION), 2)
    return bool(body.user_data)


def held_after_join(assignment: bytes, subscription: bytes) -> tuple[NamedPartitions, NamedPartitions]:
    """(assigned partitions, those that it still owns when it joins); empty if the bytes do not parse."""
    try:
        return read_assignment(assignment), owned_partitions(read_subscription(subscription))
    except ProtocolError:
        return frozenset(), frozenset()


def write_assignment(partitions: Mapping[str, list[int]], like: bytes) -> bytes:
    """Encode an assignment in the version of the subscription `like` (version 0 if that does not parse)."""
    try:
        version = min(_version(like), LAST_VERSION)
    except ProtocolError:
        version = 0
    topics = [TopicPartition(topic=topic, partitions=ids) for topic, ids in partitions.items()]
    return version.to_bytes(2, "big") + encode(ConsumerProtocolAssignment(assigned_partitions=topics), version)


def _version(data: bytes) -> int:
    if len(data) < 2 or data[0] & 0x80:
        raise ProtocolError("not of the consumer protocol")
    return int.from_bytes(data[:2], "big")
