"""ListTransactionsRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, int64, string


class ListTransactionsRequest(Message, kind="request", key=66, versions="0-2", flexible="0+"):
    """Request of API 66, versions 0-2, flexible 0+; listeners: broker."""

    state_filters: list[str] = array("string", "0+")
    producer_id_filters: list[int] = array("int64", "0+")
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", default=None, nullable="2+")
