"""Record batches to the leaders of their partitions, inside one transaction, several requests under way at once."""

from __future__ import annotations

from collections.abc import Iterable

from odradek.common.errors import ErrorCode, ProtocolError
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.record.batch import advance_sequence, stamp_producer
from pyspark_odradek.client.cluster import PASSING, Cluster, RetriableError, error_name
from pyspark_odradek.client.connection import Connection
from pyspark_odradek.client.offsets import TopicPartition
from pyspark_odradek.errors import ClusterError
from pyspark_odradek.record.encode import EncodedBatch

ACKS_ALL = -1
MAX_IN_FLIGHT = 5  # as many batches of a producer as a broker remembers
MAX_REQUEST_BYTES = 4 << 20

# The transaction or the order of its batches is broken: all of it is retried.
BEGIN_ANEW = PASSING | {
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.TRANSACTION_ABORTABLE,
}
TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class TransactionalSender:
    """Stamps batches with their producer and sends them; those of one partition in the given order.

    Args:
        sequences: the next sequence of each partition in this epoch of the producer; updated.
        partitions: all partitions that will be written. Their leaders are looked up before anything is sent, since a
            connection that waits for a response cannot be used.
    """

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        sequences: dict[TopicPartition, int],
        partitions: Iterable[TopicPartition],
    ) -> None:
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._sequences = sequences
        self._leaders = {partition: cluster.leader(partition) for partition in partitions}
        self._filling: dict[Connection, dict[TopicPartition, bytearray]] = {}
        self._in_flight: dict[Connection, int] = {}

    def add(self, batch: EncodedBatch) -> None:
        """Send a batch, soon. Raises as `finish`, for this batch or an earlier one."""
        partition = TopicPartition(batch.topic, batch.partition_id)
        connection = self._leaders[partition]
        filling = self._filling.setdefault(connection, {})
        if partition in filling or sum(map(len, filling.values())) + len(batch.data) > MAX_REQUEST_BYTES:
            self._send(connection)
            filling = self._filling[connection]
        data = bytearray(batch.data)
        sequence = self._sequences.get(partition, 0)
        stamp_producer(
            data,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        self._sequences[partition] = advance_sequence(sequence, batch.record_count)
        filling[partition] = data

    def finish(self) -> None:
        """Send the remaining batches, and wait until all are acknowledged.

        Raises:
            OSError, ProtocolError, RetriableError: the whole transaction is retried.
            ClusterError: a batch is refused permanently.
        """
        for connection in list(self._filling):
            self._send(connection)
        for connection, count in self._in_flight.items():
            for _ in range(count):
                self._receive(connection)

    def _send(self, connection: Connection) -> None:
        filling = self._filling[connection]
        if not filling:
            return
        if self._in_flight.get(connection, 0) >= MAX_IN_FLIGHT:
            self._receive(connection)
            self._in_flight[connection] -= 1
        topics: dict[str, list[PartitionProduceData]] = {}
        for partition, data in filling.items():
            topics.setdefault(partition.topic, []).append(
                PartitionProduceData(index=partition.partition_id, records=data)
            )
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=ACKS_ALL,
            timeout_ms=self._cluster.settings.request_timeout_ms,
            topic_data=[TopicProduceData(name=name, partition_data=parts) for name, parts in topics.items()],
        )
        connection.send(ApiKey.PRODUCE, request, ProduceResponse)
        self._in_flight[connection] = self._in_flight.get(connection, 0) + 1
        self._filling[connection] = {}

    def _receive(self, connection: Connection) -> None:
        answer = connection.receive()
        if not isinstance(answer, ProduceResponse):
            raise ProtocolError(f"{connection.address} answered Produce with {type(answer).__name__}")
        for topic in answer.responses:
            for part in topic.partition_responses:
                code = part.error_code
                if code == ErrorCode.NONE:
                    continue
                where = f"{topic.name}-{part.index}"
                if code in BEGIN_ANEW:
                    raise RetriableError(f"Produce to {where}: {error_name(code)}")
                advice = ""
                if code in TOO_LARGE:
                    advice = "; lower the option kafka.batch.size, or raise the topic's max.message.bytes"
                why = f" ({part.error_message})" if part.error_message else ""
                raise ClusterError(f"records for {where} were refused: {error_name(code)}{why}{advice}")
