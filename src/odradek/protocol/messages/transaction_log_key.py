"""TransactionLogKey, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, string


class TransactionLogKey(Message, kind="coordinator-key", key=0, versions="0"):
    """Key of a coordinator's record, type 0, versions 0, never flexible."""

    transactional_id: str = string("0")
