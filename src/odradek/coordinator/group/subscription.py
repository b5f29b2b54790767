"""What the coordinator reads of the embedded consumer protocol: the topics that a member subscribes to, nothing else.

A subscription is an int16 version and a body; the body of version 0, which every later one begins with, is enough.
Source: Kafka ConsumerProtocol.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.common.errors import ProtocolError
from odradek.protocol.codec import decode_prefix
from odradek.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """All topics of some members' subscriptions; None where one of them is not a subscription."""
    topics: set[str] = set()
    try:
        for subscription in subscriptions:
            if len(subscription) < 2 or subscription[0] & 0x80:
                return None
            body, _ = decode_prefix(ConsumerProtocolSubscription, subscription, 0, 2)
            topics.update(body.topics)
    except ProtocolError:
        return None
    return frozenset(topics)
