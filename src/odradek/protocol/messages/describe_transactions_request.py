"""DescribeTransactionsRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array


class DescribeTransactionsRequest(Message, kind="request", key=65, versions="0", flexible="0+"):
    """Request of API 65, versions 0, flexible 0+; listeners: broker."""

    transactional_ids: list[str] = array("string", "0+")
