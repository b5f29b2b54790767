"""DescribeTransactionsResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, int16, int32, int64, string


class TopicData(Message):
    """Within DescribeTransactionsResponse."""

    topic: str = string("0+")
    partitions: list[int] = array("int32", "0+")


class TransactionState(Message):
    """Within DescribeTransactionsResponse."""

    error_code: int = int16("0+")
    transactional_id: str = string("0+")
    transaction_state: str = string("0+")
    transaction_timeout_ms: int = int32("0+")
    transaction_start_time_ms: int = int64("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    topics: list[TopicData] = array(TopicData, "0+")


class DescribeTransactionsResponse(Message, kind="response", key=65, versions="0", flexible="0+"):
    """Response of API 65, versions 0, flexible 0+."""

    throttle_time_ms: int = int32("0+")
    transaction_states: list[TransactionState] = array(TransactionState, "0+")
