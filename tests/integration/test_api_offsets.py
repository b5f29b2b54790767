"""ListOffsets by place and by time, OffsetForLeaderEpoch, DeleteRecords, DescribeProducers, InitProducerId."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from odradek.protocol.apis import ApiKey
from odradek.protocol.extras import NO_RECORD_TIME, OFFSET_TIMES_LIMIT, offset_times_field, read_offset_times
from odradek.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.delete_records_response import DeleteRecordsPartitionResult
from odradek.protocol.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from odradek.protocol.messages.describe_producers_response import PartitionResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.messages.list_offsets_response import ListOffsetsPartitionResponse
from odradek.protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.protocol.messages.offset_for_leader_epoch_response import EpochEndOffset
from tests.support.clients.api_calls import Calls, batch, batch_count, fetch_topic, fresh_name, name_of, one, values_in
from tests.support.nodes.node import Node

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
START_MS = 1_700_000_000_000
only_ours = pytest.mark.only_ours


@pytest.fixture
def calls(node: Node) -> Iterator[Calls]:
    with Calls(node.port) as connection:
        yield connection


@pytest.fixture(scope="module")
def topic(node: Node) -> str:
    """Five batches of three records; record n is of START_MS + 100 n."""
    with Calls(node.port) as connection:
        name = connection.create_topic(2)
        for number in range(5):
            # batch() puts its records one ms apart.
            first = START_MS + 300 * number
            assert not connection.produce(name, batch(b"a", b"b", b"c", timestamp_ms=first)).error_code
        return name


class TestListOffsets:
    @staticmethod
    def request(
        calls: Calls, topic: str, timestamp: int, version: int = 9, partition: int = 0, **fields: Any
    ) -> ListOffsetsPartitionResponse:
        wanted = ListOffsetsPartition(
            partition_index=partition, timestamp=timestamp, current_leader_epoch=fields.pop("epoch", -1)
        )
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[wanted])], **fields)
        found: ListOffsetsPartitionResponse = (
            calls.request(ApiKey.LIST_OFFSETS, version, request).topics[0].partitions[0]
        )
        return found

    @pytest.mark.parametrize(
        ("timestamp", "expected"),
        [
            (LATEST, (15, -1, 0)),
            (EARLIEST, (0, -1, 0)),
            (MAX_TIMESTAMP, (14, START_MS + 1202, 0)),
            (EARLIEST_LOCAL, (0, -1, 0)),
            (LATEST_TIERED, (-1, -1, -1)),
        ],
    )
    def test_places(self, calls: Calls, topic: str, timestamp: int, expected: tuple[int, int, int]) -> None:
        found = self.request(calls, topic, timestamp)
        assert (found.offset, found.timestamp, found.leader_epoch) == expected
        assert not found.error_code

    @pytest.mark.parametrize(
        ("timestamp", "offset", "at_ms"),
        [
            (0, 0, START_MS),
            (START_MS, 0, START_MS),
            (START_MS + 1, 1, START_MS + 1),
            (START_MS + 3, 3, START_MS + 300),
            (START_MS + 301, 4, START_MS + 301),
            (START_MS + 1202, 14, START_MS + 1202),
            (START_MS + 1203, -1, -1),
            (2**63 - 1, -1, -1),
        ],
    )
    def test_the_first_record_at_or_after_a_time(
        self, calls: Calls, topic: str, timestamp: int, offset: int, at_ms: int
    ) -> None:
        found = self.request(calls, topic, timestamp)
        assert (found.offset, found.timestamp, found.error_code) == (offset, at_ms, 0)

    def test_time_over_compressed_batches_and_times_that_go_back(self, calls: Calls) -> None:
        topic = calls.create_topic()
        for first, codec in ((5000, "gzip"), (3000, "zstd"), (9000, "snappy"), (1000, "none")):
            calls.produce(topic, batch(b"a", b"b", timestamp_ms=START_MS + first, compression=codec))
        for time_ms, offset in ((0, 0), (5001, 1), (5002, 4), (9001, 5), (9002, -1)):
            assert self.request(calls, topic, START_MS + time_ms).offset == offset, time_ms
        newest = self.request(calls, topic, MAX_TIMESTAMP)
        assert (newest.offset, newest.timestamp) == (5, START_MS + 9001)

    @pytest.mark.parametrize(
        ("timestamp", "since"), [(MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (PENDING_UPLOAD, 11)]
    )
    def test_a_place_is_unknown_before_its_version(self, calls: Calls, topic: str, timestamp: int, since: int) -> None:
        before = self.request(calls, topic, timestamp, since - 1)
        assert (name_of(before.error_code), before.offset) == ("UNSUPPORTED_VERSION", -1)
        assert name_of(self.request(calls, topic, timestamp, since).error_code) == "NONE"

    @pytest.mark.parametrize("timestamp", [-7, -(2**63)])
    def test_places_that_no_one_knows(self, calls: Calls, topic: str, timestamp: int) -> None:
        assert name_of(self.request(calls, topic, timestamp).error_code) == "UNSUPPORTED_VERSION"

    def test_an_empty_partition(self, calls: Calls, topic: str) -> None:
        for timestamp, offset, epoch in ((LATEST, 0, 0), (EARLIEST, 0, 0), (MAX_TIMESTAMP, -1, -1), (START_MS, -1, -1)):
            found = self.request(calls, topic, timestamp, partition=1)
            assert (found.offset, found.leader_epoch) == (offset, epoch), timestamp

    @only_ours
    def test_times_of_offsets_for_those_who_ask(self, calls: Calls, topic: str) -> None:
        def times(*offsets: int) -> tuple[int, ...]:
            field = (offset_times_field(offsets),)
            wanted = ListOffsetsPartition(partition_index=0, timestamp=LATEST, unknown_tagged_fields=field)
            request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
            return read_offset_times(calls.request(ApiKey.LIST_OFFSETS, 9, request).topics[0].partitions[0])

        # Offset 4 is inside of the second batch, whose newest record is of START_MS + 302.
        assert times(0, 3, 4, 12, 15, -1) == (
            START_MS,
            START_MS + 300,
            START_MS + 302,
            START_MS + 1200,
            NO_RECORD_TIME,
            START_MS,
        )
        assert times() == () and self.request(calls, topic, LATEST).unknown_tagged_fields == ()
        assert len(times(*[0] * (OFFSET_TIMES_LIMIT + 5))) == OFFSET_TIMES_LIMIT

    def test_unknown_topics_and_partitions_are_reported(self, calls: Calls, topic: str) -> None:
        assert name_of(self.request(calls, topic, LATEST, partition=2).error_code) == "UNKNOWN_TOPIC_OR_PARTITION"
        assert name_of(self.request(calls, fresh_name(), LATEST).error_code) == "UNKNOWN_TOPIC_OR_PARTITION"

    def test_leader_epochs(self, calls: Calls, topic: str) -> None:
        assert name_of(self.request(calls, topic, LATEST, epoch=0).error_code) == "NONE"
        assert name_of(self.request(calls, topic, LATEST, epoch=1).error_code) == "UNKNOWN_LEADER_EPOCH"

    def test_committed_reads_end_at_the_stable_offset(self, calls: Calls, topic: str) -> None:
        assert self.request(calls, topic, LATEST, isolation_level=1).offset == 15

    def test_the_same_partition_twice(self, calls: Calls, topic: str) -> None:
        twice = [ListOffsetsPartition(partition_index=0, timestamp=LATEST) for _ in range(2)]
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=twice)])
        parts = calls.request(ApiKey.LIST_OFFSETS, 7, request).topics[0].partitions
        assert {name_of(part.error_code) for part in parts} == {"INVALID_REQUEST"}


class TestOffsetForLeaderEpoch:
    @staticmethod
    def request(calls: Calls, topic: str, epoch: int, *, current: int = -1, partition: int = 0) -> EpochEndOffset:
        wanted = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])])
        found: EpochEndOffset = calls.request(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, request).topics[0].partitions[0]
        return found

    def test_the_present_epoch_ends_at_the_end(self, calls: Calls, topic: str) -> None:
        found = self.request(calls, topic, 0, current=0)
        assert (found.error_code, found.leader_epoch, found.end_offset) == (0, 0, 15)

    @pytest.mark.parametrize("epoch", [1, 1000, -1])
    def test_an_epoch_that_never_was(self, calls: Calls, topic: str, epoch: int) -> None:
        found = self.request(calls, topic, epoch)
        assert (found.error_code, found.leader_epoch, found.end_offset) == (0, -1, -1)

    def test_an_epoch_above_the_leaders_is_unknown(self, calls: Calls, topic: str) -> None:
        found = self.request(calls, topic, 0, current=5)
        assert name_of(found.error_code) == "UNKNOWN_LEADER_EPOCH"

    def test_unknown_topics_and_partitions_are_reported(self, calls: Calls, topic: str) -> None:
        assert name_of(self.request(calls, topic, 0, partition=9).error_code) == "UNKNOWN_TOPIC_OR_PARTITION"
        assert name_of(self.request(calls, fresh_name(), 0).error_code) == "UNKNOWN_TOPIC_OR_PARTITION"

    @only_ours  # restarts a node
    def test_a_kill_begins_a_new_epoch_and_old_ones_are_known(self, own_node: Node) -> None:
        with Calls(own_node.port) as calls:
            topic = calls.create_topic()
            calls.fill(topic, 3)
        own_node.kill()
        own_node.start()
        with Calls(own_node.port) as calls:
            calls.fill(topic, 2)
            present = TestListOffsets.request(calls, topic, LATEST).leader_epoch
            assert present > 0
            assert TestListOffsets.request(calls, topic, EARLIEST).leader_epoch == 0
            for asked, epoch, end in ((0, 0, 3), (present - 1, 0, 3), (present, present, 5), (present + 1, -1, -1)):
                found = self.request(calls, topic, asked)
                assert (found.leader_epoch, found.end_offset) == (epoch, end), asked
            fenced = calls.fetch(fetch_topic(topic, {0: 5}, current_leader_epoch=0)).responses[0].partitions[0]
            assert name_of(fenced.error_code) == "FENCED_LEADER_EPOCH"
            assert name_of(self.request(calls, topic, 0, current=0).error_code) == "FENCED_LEADER_EPOCH"
            parted = calls.fetch(fetch_topic(topic, {0: 4}, last_fetched_epoch=0)).responses[0].partitions[0]
            assert (parted.diverging_epoch.epoch, parted.diverging_epoch.end_offset) == (0, 3)

    @only_ours  # restarts a node
    def test_an_epoch_without_a_record_is_known_after_restarts(self, own_node: Node) -> None:
        with Calls(own_node.port) as calls:
            topic = calls.create_topic()
            begun = TestListOffsets.request(calls, topic, EARLIEST).leader_epoch
        for _ in range(2):
            own_node.kill()
            own_node.start()
            with Calls(own_node.port) as calls:
                found = self.request(calls, topic, begun)
                assert (found.leader_epoch, found.end_offset) == (begun, 0)


class TestDeleteRecords:
    @staticmethod
    def request(calls: Calls, topic: str, offset: int, partition: int = 0) -> DeleteRecordsPartitionResult:
        wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=30_000)
        found: DeleteRecordsPartitionResult = calls.request(ApiKey.DELETE_RECORDS, 2, request).topics[0].partitions[0]
        return found

    def test_the_start_moves_and_what_is_below_is_gone(self, calls: Calls) -> None:
        topic = calls.create_topic()
        calls.fill(topic, 10)
        found = self.request(calls, topic, 4)
        assert (found.error_code, found.low_watermark) == (0, 4)
        assert calls.list_end(topic, timestamp=EARLIEST) == 4
        assert name_of(calls.read(topic, 3).error_code) == "OFFSET_OUT_OF_RANGE"
        answer = calls.read(topic, 4)
        assert (batch_count(answer.records), answer.log_start_offset) == (6, 4)
        assert calls.list_end(topic, timestamp=0) == 4, "a time below the start is found at the start"

    def test_the_log_start_never_moves_back(self, calls: Calls) -> None:
        topic = calls.create_topic()
        calls.fill(topic, 5)
        self.request(calls, topic, 3)
        assert self.request(calls, topic, 1).low_watermark == 3

    def test_minus_one_is_all(self, calls: Calls) -> None:
        topic = calls.create_topic()
        calls.fill(topic, 5)
        assert self.request(calls, topic, -1).low_watermark == 5
        assert not batch_count(calls.read(topic, 5).records)
        assert calls.produce(topic, batch(b"next")).base_offset == 5

    def test_inside_a_batch_the_batch_stays_and_the_start_counts(self, calls: Calls) -> None:
        topic = calls.create_topic()
        calls.produce(topic, batch(b"a", b"b", b"c"))
        assert self.request(calls, topic, 2).low_watermark == 2
        assert name_of(calls.read(topic, 1).error_code) == "OFFSET_OUT_OF_RANGE"
        assert values_in(calls.read(topic, 2).records) == [b"a", b"b", b"c"], "the client skips those below"

    @pytest.mark.parametrize("offset", [6, 2**62, -2])
    def test_beyond_the_end(self, calls: Calls, offset: int) -> None:
        topic = calls.create_topic()
        calls.fill(topic, 5)
        found = self.request(calls, topic, offset)
        assert (name_of(found.error_code), found.low_watermark) == ("OFFSET_OUT_OF_RANGE", -1)
        assert calls.list_end(topic, timestamp=EARLIEST) == 0

    def test_only_where_deletion_is_the_policy(self, calls: Calls) -> None:
        compacted = calls.create_topic(cleanup_policy="compact")
        calls.fill(compacted, 2)
        assert name_of(self.request(calls, compacted, 1).error_code) == "POLICY_VIOLATION"
        both = calls.create_topic(cleanup_policy="compact,delete")
        calls.fill(both, 2)
        assert self.request(calls, both, 1).low_watermark == 1

    def test_internal_topics_are_not_for_clients(self, calls: Calls) -> None:
        calls.find_coordinator("any")
        assert name_of(self.request(calls, "__consumer_offsets", 0).error_code) == "INVALID_TOPIC_EXCEPTION"

    def test_unknown_topics_and_partitions_are_reported(self, calls: Calls) -> None:
        topic = calls.create_topic()
        assert name_of(self.request(calls, topic, 0, 7).error_code) == "UNKNOWN_TOPIC_OR_PARTITION"
        assert name_of(self.request(calls, fresh_name(), 0).error_code) == "UNKNOWN_TOPIC_OR_PARTITION"

    @only_ours
    def test_a_restart_remembers(self, own_node: Node) -> None:
        with Calls(own_node.port) as calls:
            topic = calls.create_topic()
            calls.fill(topic, 5)
            self.request(calls, topic, 3)
        own_node.stop()
        own_node.start()
        with Calls(own_node.port) as calls:
            assert calls.list_end(topic, timestamp=EARLIEST) == 3


class TestProducers:
    @staticmethod
    def describe(calls: Calls, topic: str, partition: int = 0) -> PartitionResponse:
        request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[partition])])
        found: PartitionResponse = calls.request(ApiKey.DESCRIBE_PRODUCERS, 0, request).topics[0].partitions[0]
        return found

    def test_a_partition_knows_its_producers(self, calls: Calls) -> None:
        topic, producer = calls.create_topic(), calls.producer()
        assert self.describe(calls, topic).active_producers == []
        sent = batch(b"a", b"b", producer_id=producer, producer_epoch=0, sequence=0, timestamp_ms=START_MS)
        assert not calls.produce(topic, sent).error_code
        known = one(self.describe(calls, topic).active_producers)
        assert (known.producer_id, known.producer_epoch, known.last_sequence) == (producer, 0, 1)
        assert (known.last_timestamp, known.coordinator_epoch, known.current_txn_start_offset) == (
            START_MS + 1,
            -1,
            -1,
        )

    def test_producers_of_unknown_partitions_are_refused(self, calls: Calls) -> None:
        topic = calls.create_topic()
        assert name_of(self.describe(calls, topic, 5).error_code) == "UNKNOWN_TOPIC_OR_PARTITION"
        assert name_of(self.describe(calls, fresh_name()).error_code) == "UNKNOWN_TOPIC_OR_PARTITION"
        assert name_of(self.describe(calls, "no topic's name").error_code) == "INVALID_TOPIC_EXCEPTION"

    def test_every_id_is_given_once(self, calls: Calls) -> None:
        ids = [calls.producer() for _ in range(50)]
        assert len(set(ids)) == 50

    @pytest.mark.parametrize(
        ("producer_id", "epoch", "expected"),
        [(-1, -1, "NONE"), (5, 3, "NONE"), (5, -1, "INVALID_REQUEST"), (-1, 3, "INVALID_REQUEST")],
    )
    def test_a_producer_that_wants_its_epoch_bumped(
        self, calls: Calls, producer_id: int, epoch: int, expected: str
    ) -> None:
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=60_000, producer_id=producer_id, producer_epoch=epoch
        )
        answer = calls.request(ApiKey.INIT_PRODUCER_ID, 4, request)
        assert name_of(answer.error_code) == expected
        assert answer.producer_epoch == (0 if expected == "NONE" else -1)

    @only_ours
    def test_ids_are_not_given_again_after_a_kill(self, own_node: Node) -> None:
        with Calls(own_node.port) as calls:
            before = [calls.producer() for _ in range(3)]
        own_node.kill()
        own_node.start()
        with Calls(own_node.port) as calls:
            assert calls.producer() > max(before)
