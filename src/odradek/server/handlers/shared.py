"""Shared functions of handlers: addresses of leaders, internal topics, transactional ids."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.turns import PARTITIONS_PER_TURN, Turns
from odradek.coordinator.transaction.connections import Arrival
from odradek.coordinator.transaction.machine import BUMPS_EPOCH, Request
from odradek.metadata.acls import AclOperation, AclResourceType
from odradek.metadata.model import Endpoint

if TYPE_CHECKING:
    from odradek.metadata.image import MetadataImage
    from odradek.metadata.model import BrokerImage
    from odradek.server.context import RequestContext

# The client id that may write to internal topics, as in Kafka.
ADMIN_CLIENT_ID = "__admin_client"
# The authorized operations if the request does not include them.
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
    """The endpoint of a broker for the listener of this client, or None.

    Without advertised.listeners this broker's own address is the one to which the client has connected.
    """
    listener = context.connection.listener
    if broker.broker_id == context.broker.node_id and listener.advertised is None and listener.scope == "broker":
        return context.connection.local_address
    endpoint = broker.endpoint(listener.name)
    return None if endpoint is None else (endpoint.host, endpoint.port)


def fenced_code(code: ErrorCode, api_version: int, first_version: int) -> ErrorCode:
    """The error code of a fenced producer: PRODUCER_FENCED from `first_version` on (KIP-588)."""
    if code is ErrorCode.PRODUCER_FENCED and api_version < first_version:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


async def may_on_groups(context: RequestContext, operation: AclOperation, group_ids: Iterable[str]) -> dict[str, bool]:
    """Whether the client may do this with each group, in the order of the names."""
    turns, may = Turns(PARTITIONS_PER_TURN), {}
    for group_id in group_ids:
        if group_id not in may:
            may[group_id] = context.authorize(operation, AclResourceType.GROUP, group_id)
        await turns.spend()
    return may


def transaction_request(
    context: RequestContext, transactional_id: str, producer_id: int, producer_epoch: int, *, bumps: bool = False
) -> Request:
    """The client and the transactional id of a request.

    Args:
        bumps: every end of the client's transactions bumps the epoch (KIP-890), which distinguishes late requests from
            new ones; for other clients the connection does.
    Raises:
        ApiError: INVALID_REQUEST without an id.
    """
    if not transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id must not be empty")
    if bumps:
        return Request(transactional_id, producer_id, producer_epoch, BUMPS_EPOCH)
    arrival = Arrival(context.connection.number, context.connection.newest_number)
    return Request(transactional_id, producer_id, producer_epoch, arrival=arrival)
