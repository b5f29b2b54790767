"""What several handlers need to say: where a leader is, which topics are internal, which name a client may use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.common.errors import ApiError, ErrorCode
from odradek.coordinator.transaction.connections import Arrival
from odradek.coordinator.transaction.machine import BUMPS_EPOCH, Request
from odradek.metadata.model import Endpoint

if TYPE_CHECKING:
    from odradek.metadata.image import MetadataImage
    from odradek.metadata.model import BrokerImage
    from odradek.server.context import RequestContext

# Of a request that names many partitions: how many are looked at, or answered, in one turn of the loop.
PARTITIONS_PER_TURN = 2000
# The topics that Kafka keeps for itself.
# What Kafka lets write to internal topics.
ADMIN_CLIENT_ID = "__admin_client"
# Authorized operations where the request does not ask for them.
NO_OPERATIONS = -(2**31)


def leader_hint(
    image: MetadataImage, topic: str, partition_id: int, listener_name: str
) -> tuple[int, int, Endpoint] | None:
    """(leader id, leader epoch, its endpoint) to send along with NOT_LEADER_OR_FOLLOWER (KIP-951)."""
    partition = image.partition(topic, partition_id)
    broker = None if partition is None else image.brokers.get(partition.leader)
    endpoint = None if broker is None else broker.endpoint(listener_name)
    if partition is None or endpoint is None:
        return None
    return partition.leader, partition.leader_epoch, endpoint


def address_of(context: RequestContext, broker: BrokerImage) -> tuple[str, int] | None:
    """Where this client reaches a broker: the endpoint of the listener that it came by, or None.

    Without advertised.listeners our own address is the one that the client dialled: it is known to work.
    """
    listener = context.connection.listener
    if broker.broker_id == context.broker.node_id and listener.advertised is None and listener.scope == "broker":
        return context.connection.local_address
    endpoint = broker.endpoint(listener.name)
    return None if endpoint is None else (endpoint.host, endpoint.port)


def fenced_code(code: ErrorCode, api_version: int, first_version: int) -> ErrorCode:
    """What a version says of a fenced producer: PRODUCER_FENCED is known from `first_version` on (KIP-588)."""
    if code is ErrorCode.PRODUCER_FENCED and api_version < first_version:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def transaction_request(
    context: RequestContext, transactional_id: str, producer_id: int, producer_epoch: int, *, bumps: bool = False
) -> Request:
    """Who asks for what transactional id.

    Args:
        bumps: the client's transactions are those whose every end bumps the epoch (KIP-890), which separates its late
            requests from its new ones; their connections do for others.
    Raises:
        ApiError: INVALID_REQUEST without an id.
    """
    if not transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id must not be empty")
    if bumps:
        return Request(transactional_id, producer_id, producer_epoch, BUMPS_EPOCH)
    arrival = Arrival(context.connection.number, context.connection.newest_number)
    return Request(transactional_id, producer_id, producer_epoch, arrival=arrival)
