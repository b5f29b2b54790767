"""EnvelopeRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, binary


class EnvelopeRequest(Message, kind="request", key=58, versions="0", flexible="0+"):
    """Request of API 58, versions 0, flexible 0+; listeners: controller."""

    request_data: bytes = binary("0+")
    request_principal: bytes | None = binary("0+", nullable="0+")
    client_host_address: bytes = binary("0+")
