"""PushTelemetryRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, binary, boolean, int8, int32, uuid


class PushTelemetryRequest(Message, kind="request", key=72, versions="0", flexible="0+"):
    """Request of API 72, versions 0, flexible 0+; listeners: broker."""

    client_instance_id: UUID = uuid("0+")
    subscription_id: int = int32("0+")
    terminating: bool = boolean("0+")
    compression_type: int = int8("0+")
    metrics: bytes = binary("0+")
