"""Short forms over `Wire` for tests of single APIs: topics with names of their own, batches in, batches out."""

from __future__ import annotations

import itertools
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID, uuid4

from odradek.common.errors import ErrorCode
from odradek.protocol.apis import ApiKey
from odradek.protocol.declare import Message
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.protocol.messages.describe_groups_request import DescribeGroupsRequest
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.fetch_response import FetchResponse, PartitionData
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.produce_response import PartitionProduceResponse
from odradek.record.batch import seal
from odradek.record.builder import build_batch
from odradek.record.reader import read_batches, read_records
from odradek.record.record import Record
from tests.support.clients.wire import Wire
from tests.support.waiting import eventually

_numbers = itertools.count(1)
NO_ID = UUID(int=0)
LOADING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


def fresh_name(start: str = "t") -> str:
    """A name that no other test uses."""
    return f"{start}-{next(_numbers)}-{uuid4().hex[:8]}"


def batch(
    *values: bytes | None,
    key: bytes | None = b"k",
    timestamp_ms: int | None = None,
    compression: str = "none",
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """One batch as a client sends it, a record for each value, one ms apart; now where no time is given."""
    start_ms = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
    return build_batch(
        [Record(key, value, timestamp_ms=start_ms + index) for index, value in enumerate(values)],
        compression=compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        transactional=transactional,
        control=control,
    )


def with_field(data: bytes, layout: str, position: int, value: int, *, sealed: bool = True) -> bytes:
    """The batch with one field of its header written over; its CRC is right again where it is `sealed`."""
    changed = bytearray(data)
    struct.pack_into(layout, changed, position, value)
    if sealed:
        seal(changed)
    return bytes(changed)


def name_of(code: int) -> str:
    """Kafka's name of an error code."""
    return ErrorCode(code).name


def error_codes(message: Any) -> Iterator[int]:
    """Every error code of a response, in the order of its fields."""
    for spec in type(message).FIELDS:
        value = getattr(message, spec.name)
        if spec.name.endswith("error_code"):
            yield value
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Message):
                yield from error_codes(each)


class Calls(Wire):
    """A connection with the requests that every test needs."""

    def create_topic(self, partitions: int = 1, *, name: str | None = None, **configs: object) -> str:
        """Create a topic and wait until its partitions are led; `max_message_bytes=1` is max.message.bytes=1."""
        topic = name or fresh_name()
        settings = [
            CreatableTopicConfig(name=key.replace("_", "."), value=str(value)) for key, value in configs.items()
        ]
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1, configs=settings)],
            timeout_ms=30_000,
        )
        answer = self.request(ApiKey.CREATE_TOPICS, 5, request).topics[0]
        assert not answer.error_code, (name_of(answer.error_code), answer.error_message)
        self.wait_for_leaders(topic, partitions)
        return topic

    def wait_for_leaders(self, topic: str, partitions: int) -> None:
        """Wait until a topic's partitions answer; ours do at once, Kafka's when the broker has replayed them."""
        eventually(lambda: all(self.list_end(topic, number) >= 0 for number in range(partitions)), topic)

    def list_end(self, topic: str, partition: int = 0, timestamp: int = -1) -> int:
        """The offset that ListOffsets gives for a time, -1 by default: the end; -1 also for any error."""
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
        offset: int = self.request(ApiKey.LIST_OFFSETS, 7, request).topics[0].partitions[0].offset
        return offset

    def topic_id(self, topic: str) -> UUID:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        found: UUID = self.request(ApiKey.METADATA, 12, request).topics[0].topic_id
        return found

    def produce(
        self, topic: str, records: Any, *, partition: int = 0, acks: int = -1, version: int = 11, **fields: Any
    ) -> PartitionProduceResponse:
        """Send one batch and return the answer of its partition."""
        answer = self.request(ApiKey.PRODUCE, version, produce_request(topic, records, partition, acks, **fields))
        found: PartitionProduceResponse = answer.responses[0].partition_responses[0]
        return found

    def fill(self, topic: str, count: int, size_bytes: int = 100, partition: int = 0) -> list[bytes]:
        """`count` batches of one record with that much value; returns them as they are in the log."""
        stored = []
        for number in range(count):
            data = batch(bytes([number % 256]) * size_bytes)
            answer = self.produce(topic, data, partition=partition)
            assert not answer.error_code, name_of(answer.error_code)
            stored.append(data)
        return stored

    def producer(self) -> int:
        """A producer id of one's own, at epoch 0."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        answer = self.request_until_loaded(ApiKey.INIT_PRODUCER_ID, 4, request)
        assert not answer.error_code, name_of(answer.error_code)
        found: int = answer.producer_id
        return found

    def find_coordinator(self, group: str) -> None:
        """Wait until a group's coordinator is there and has loaded; the first question makes its topic."""
        answer = self.request_until_loaded(ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=[group]))
        assert not any(error_codes(answer)), answer
        # The coordinator is known before its partition is loaded: only the group's own APIs show that.
        answer = self.request_until_loaded(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=[group]))
        assert not any(error_codes(answer)), answer

    def request_until_loaded(self, api_key: ApiKey, version: int, request: Any) -> Any:
        """The response once the coordinator has loaded; Kafka's load for a moment after the start."""

        def loaded() -> Any:
            answer = self.request(api_key, version, request)
            return None if LOADING & set(error_codes(answer)) else answer

        return eventually(loaded, api_key)

    def fetch(self, *topics: FetchTopic, version: int = 12, **fields: Any) -> FetchResponse:
        """One Fetch; does not wait where `max_wait_ms` is not given."""
        answer: FetchResponse = self.request(ApiKey.FETCH, version, fetch_request(*topics, **fields))
        return answer

    def read(self, topic: str, offset: int = 0, *, version: int = 12, **fields: Any) -> PartitionData:
        """The answer of one Fetch of partition 0."""
        return self.fetch(fetch_topic(topic, {0: offset}), version=version, **fields).responses[0].partitions[0]


def produce_request(topic: str, records: Any, partition: int = 0, acks: int = -1, **fields: Any) -> ProduceRequest:
    """A Produce of one batch; a topic id goes in as `topic_id`."""
    named = TopicProduceData(
        name=topic,
        topic_id=fields.pop("topic_id", NO_ID),
        partition_data=[PartitionProduceData(index=partition, records=records)],
    )
    return ProduceRequest(acks=acks, timeout_ms=fields.pop("timeout_ms", 60_000), topic_data=[named], **fields)


def fetch_topic(topic: str | UUID, offsets: dict[int, int], *, max_bytes: int = 2**20, **fields: Any) -> FetchTopic:
    """Partitions of a topic, each from an offset on."""
    wanted = [
        FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=max_bytes, **fields)
        for number, offset in offsets.items()
    ]
    if isinstance(topic, UUID):
        return FetchTopic(topic_id=topic, partitions=wanted)
    return FetchTopic(topic=topic, partitions=wanted)


def fetch_request(*topics: FetchTopic, **fields: Any) -> FetchRequest:
    """A Fetch without a session, unless `session_epoch` says otherwise, that does not wait."""
    settings: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 2**25, "session_epoch": -1}
    return FetchRequest(topics=list(topics), **(settings | fields))


def bytes_of(records: Any) -> bytes:
    """Fetched records as they came."""
    return bytes(records or b"")


def values_in(records: Any) -> list[bytes | None]:
    """The values of all records in fetched bytes."""
    data = bytes_of(records)
    return [
        record.value
        for position, header in read_batches(data)
        for record in read_records(data[position : position + header.size_bytes], header)
    ]


def batch_count(records: Any) -> int:
    """The number of whole batches in fetched bytes."""
    return sum(1 for _ in read_batches(bytes_of(records)))


def one(items: Sequence[Any]) -> Any:
    """The only element."""
    assert len(items) == 1, items
    return items[0]
