"""Writes one record, for tools; applications use the Kafka client of their language."""

from __future__ import annotations

from odradek.client.cluster import Cluster, check
from odradek.common.errors import ApiError, ErrorCode
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.produce_response import PartitionProduceResponse, ProduceResponse
from odradek.record.builder import build_batch
from odradek.record.record import Record

# Later versions name topics by id.
_LAST_BY_NAME = 12
_ALL = -1
_SEED, _FACTOR, _SHIFT, _MASK = 0x9747B28C, 0x5BD1E995, 24, 0xFFFFFFFF


def partition_of_key(key: bytes, count: int) -> int:
    """The partition of a key, as Java clients choose it: murmur2 without its sign."""
    hashed = (_SEED ^ len(key)) & _MASK
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        piece = int.from_bytes(key[at : at + 4], "little") * _FACTOR & _MASK
        piece = (piece ^ piece >> _SHIFT) * _FACTOR & _MASK
        hashed = hashed * _FACTOR & _MASK ^ piece
    if len(key) > whole:
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * _FACTOR & _MASK
    hashed = (hashed ^ hashed >> 13) * _FACTOR & _MASK
    return ((hashed ^ hashed >> 15) & 0x7FFFFFFF) % count


async def produce_record(
    cluster: Cluster, topic: str, record: Record, *, partition: int | None = None
) -> tuple[int, int]:
    """Write a record once with acks=all; returns its partition and offset.

    Without `partition` the key determines it, as in Java clients; without a key it is the first one.

    Raises:
        ApiError: the record was refused. After REQUEST_TIMED_OUT it may be written nevertheless.
    """
    known = {each.partition_index: each.leader_id for each in (await cluster.topic(topic)).partitions}
    if partition is None:
        partition = partition_of_key(record.key, len(known)) if record.key is not None else min(known)
    if partition not in known:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} has no partition {partition}")
    if known[partition] < 0:
        raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
    data = PartitionProduceData(index=partition, records=build_batch([record]))
    request = ProduceRequest(
        acks=_ALL, timeout_ms=cluster.timeout_ms, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    # No retry: without an idempotent producer the record could be written twice.
    response = await cluster.request(request, ProduceResponse, node_id=known[partition], at_most=_LAST_BY_NAME)
    answer: PartitionProduceResponse = response.responses[0].partition_responses[0]
    check(answer.error_code, f"{topic}-{partition}", answer.error_message)
    return partition, answer.base_offset
