"""Sending a consumer to a replica in its own rack (KIP-392)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.replica.followers import preferred_read_replica

if TYPE_CHECKING:
    from odradek.protocol.messages.fetch_response import PartitionData
    from odradek.replica.partition import Partition
    from odradek.server.context import RequestContext

FIRST_WITH_RACK = 11


def redirect_to_preferred_replica(
    context: RequestContext, rack: str, partition: Partition, fetch_offset: int, answer: PartitionData
) -> bool:
    """Set the preferred read replica of a consumer in `rack`; returns False if it reads from this broker."""
    select, image = context.broker.replicas.selector, context.broker.image
    if select is None or not rack or not partition.is_leader or context.api_version < FIRST_WITH_RACK:
        return False

    def rack_of(broker_id: int) -> str | None:
        broker = image.brokers.get(broker_id)
        return None if broker is None or broker.fenced else broker.rack

    chosen = preferred_read_replica(partition, select, rack, fetch_offset, rack_of)
    if chosen is None:
        return False
    log = partition.log
    answer.preferred_read_replica = chosen
    answer.high_watermark, answer.log_start_offset = log.high_watermark, log.log_start_offset
    answer.last_stable_offset = log.last_stable_offset
    answer.records = b""
    return True
