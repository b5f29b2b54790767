"""Reads records of one partition, for tools: one request at a time, without a group or prefetching.

Applications use the Kafka client of their language.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from odradek.client.cluster import Cluster, check
from odradek.common.errors import ApiError, ErrorCode
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.fetch_response import FetchResponse, PartitionData
from odradek.protocol.records_field import received
from odradek.record.batch import BatchHeader
from odradek.record.control import ControlType, control_type
from odradek.record.reader import read_batches, read_records
from odradek.record.record import Record

# Later versions name topics by id.
_LAST_BY_NAME = 12
_CONSUMER = -1


@dataclass(slots=True)
class Fetched:
    """The result of a fetch.

    Attributes:
        next_offset: the offset of the next fetch; the requested one if there is no record yet.
        unreadable: the (base offset, reason) of batches that could not be decoded.
    """

    next_offset: int
    log_start_offset: int
    high_watermark: int
    read_bytes: int = 0
    records: list[Record] = field(default_factory=list)
    unreadable: list[tuple[int, str]] = field(default_factory=list)


async def fetch_records(
    cluster: Cluster,
    key: tuple[str, int],
    offset: int,
    *,
    max_bytes: int,
    max_batch_bytes: int,
    committed: bool = True,
) -> Fetched:
    """Fetch the records from an offset on, without waiting for more.

    Args:
        max_bytes: limit of the stored batches; the first batch is returned whole, of any size.
        max_batch_bytes: a batch that decompresses to more is unreadable.
        committed: omit records of open and aborted transactions.
    Raises:
        ApiError: OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, and other errors of the leader.
    """
    topic, index = key

    async def attempt() -> PartitionData:
        leader = await _leader(cluster, topic, index)
        wanted = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)
        request = FetchRequest(
            replica_id=_CONSUMER,
            max_bytes=max_bytes,
            isolation_level=1 if committed else 0,
            topics=[FetchTopic(topic=topic, partitions=[wanted])],
        )
        response = await cluster.request(request, FetchResponse, node_id=leader, at_most=_LAST_BY_NAME)
        check(response.error_code, f"{topic}-{index}")
        data = response.responses[0].partitions[0]
        check(data.error_code, f"{topic}-{index}")
        return data

    return _read(await cluster.retried(attempt), offset, max_batch_bytes, committed=committed)


async def _leader(cluster: Cluster, topic: str, index: int) -> int:
    for partition in (await cluster.topic(topic)).partitions:
        if partition.partition_index == index:
            if partition.leader_id < 0:
                raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{index} has no leader")
            return partition.leader_id
    raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} has no partition {index}")


def _read(data: PartitionData, offset: int, max_batch_bytes: int, *, committed: bool) -> Fetched:
    raw = memoryview(received(data.records))
    found = Fetched(offset, data.log_start_offset, data.high_watermark, len(raw))
    aborted = sorted((each.first_offset, each.producer_id) for each in data.aborted_transactions or ())
    filter_ = _Aborted(aborted if committed else [])
    for position, header in read_batches(raw):
        found.next_offset = max(found.next_offset, header.last_offset + 1)
        batch = raw[position : position + header.size_bytes]
        # Markers as well: the response may begin at the marker of an aborted transaction.
        filter_.advance_to(header.last_offset)
        try:
            if header.is_control:
                filter_.ended(header, read_records(batch, header))
            elif not filter_.drops(header):
                records = read_records(batch, header, max_output_bytes=max_batch_bytes)
                found.records += [record for record in records if record.offset >= offset]
        except ApiError as error:
            found.unreadable.append((header.base_offset, error.message))
    return found


class _Aborted:
    """Filters the records of aborted transactions, in the order of the log."""

    def __init__(self, transactions: list[tuple[int, int]]) -> None:
        self._ahead = transactions
        self._open: set[int] = set()

    def advance_to(self, last_offset: int) -> None:
        """Advance to a batch: aborted transactions that begin up to its last offset are open."""
        while self._ahead and self._ahead[0][0] <= last_offset:
            self._open.add(self._ahead.pop(0)[1])

    def drops(self, header: BatchHeader) -> bool:
        return header.is_transactional and header.producer_id in self._open

    def ended(self, header: BatchHeader, markers: list[Record]) -> None:
        if any(control_type(marker) is ControlType.ABORT for marker in markers):
            self._open.discard(header.producer_id)
