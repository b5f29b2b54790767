"""WriteTxnMarkersRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, boolean, int8, int16, int32, int64, string


class WritableTxnMarkerTopic(Message):
    """Within WriteTxnMarkersRequest."""

    name: str = string("0+")
    partition_indexes: list[int] = array("int32", "0+")


class WritableTxnMarker(Message):
    """Within WriteTxnMarkersRequest."""

    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    transaction_result: bool = boolean("0+")
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic, "0+")
    coordinator_epoch: int = int32("0+")
    transaction_version: int = int8("2+", ignorable=True)


class WriteTxnMarkersRequest(Message, kind="request", key=27, versions="1-2", flexible="1+"):
    """Request of API 27, versions 1-2, flexible 1+; listeners: broker."""

    markers: list[WritableTxnMarker] = array(WritableTxnMarker, "0+")
