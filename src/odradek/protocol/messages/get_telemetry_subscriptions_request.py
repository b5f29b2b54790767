"""GetTelemetrySubscriptionsRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, uuid


class GetTelemetrySubscriptionsRequest(Message, kind="request", key=71, versions="0", flexible="0+"):
    """Request of API 71, versions 0, flexible 0+; listeners: broker."""

    client_instance_id: UUID = uuid("0+")
