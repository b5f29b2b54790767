"""AllocateProducerIdsResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int16, int32, int64


class AllocateProducerIdsResponse(Message, kind="response", key=67, versions="0", flexible="0+"):
    """Response of API 67, versions 0, flexible 0+."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id_start: int = int64("0+")
    producer_id_len: int = int32("0+")
