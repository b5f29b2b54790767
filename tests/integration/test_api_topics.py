"""Metadata, CreateTopics, CreatePartitions, DeleteTopics and DescribeTopicPartitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from odradek.protocol.apis import ApiKey
from odradek.protocol.messages import describe_topic_partitions_request as describe_request
from odradek.protocol.messages.create_partitions_request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.protocol.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.protocol.messages.create_topics_response import CreatableTopicResult
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.describe_topic_partitions_response import DescribeTopicPartitionsResponse
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import MetadataResponse
from tests.support.clients.api_calls import Calls, batch, fresh_name, name_of, one
from tests.support.nodes.node import Node

only_ours = pytest.mark.only_ours


@pytest.fixture
def calls(node: Node) -> Iterator[Calls]:
    with Calls(node.port) as connection:
        yield connection


def create(calls: Calls, *topics: CreatableTopic, version: int = 7, validate_only: bool = False) -> list[Any]:
    """Results in the order of the request."""
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=30_000, validate_only=validate_only)
    answers = calls.request(ApiKey.CREATE_TOPICS, version, request).topics
    order = [topic.name for topic in topics]
    return sorted(answers, key=lambda answer: order.index(answer.name))


def topic_of(name: str | None = None, partitions: int = 1, factor: int = 1, **configs: Any) -> CreatableTopic:
    settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return CreatableTopic(
        name=fresh_name() if name is None else name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=settings,
    )


def created(calls: Calls, topic: CreatableTopic, **fields: Any) -> CreatableTopicResult:
    found: CreatableTopicResult = one(create(calls, topic, **fields))
    return found


def metadata(calls: Calls, *names: str, version: int = 12, **fields: Any) -> MetadataResponse:
    topics = [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False, **fields)
    answer: MetadataResponse = calls.request(ApiKey.METADATA, version, request)
    return answer


class TestCreate:
    def test_a_created_topic_is_returned_and_exists(self, calls: Calls) -> None:
        topic = topic_of(partitions=3, retention_ms="5000")
        answer = created(calls, topic)
        assert not answer.error_code
        assert (answer.num_partitions, answer.replication_factor) == (3, 1)
        assert answer.topic_id != UUID(int=0)
        assert {config.name: config.value for config in answer.configs or []}["retention.ms"] == "5000"
        calls.wait_for_leaders(topic.name, 3)
        found = one(metadata(calls, topic.name).topics)
        assert (found.topic_id, len(found.partitions)) == (answer.topic_id, 3)
        assert {(p.leader_id, p.leader_epoch, *p.replica_nodes, *p.isr_nodes) for p in found.partitions} == {
            (1, 0, 1, 1)
        }

    @pytest.mark.parametrize("name", ["a", "a" * 249, "0", "-", "_", "...", "A.b_c-d"])
    def test_legal_topic_names_are_accepted(self, calls: Calls, name: str) -> None:
        assert name_of(created(calls, topic_of(name), validate_only=True).error_code) == "NONE"

    @pytest.mark.parametrize(
        "name", ["", ".", "..", "a" * 250, "a b", "a/b", "../a", "a\x00b", "\x00", "ä", "a\nb", "a:b", "a\\b", "*"]
    )
    def test_bad_names(self, calls: Calls, name: str) -> None:
        assert name_of(created(calls, topic_of(name)).error_code) == "INVALID_TOPIC_EXCEPTION"

    def test_names_that_metrics_could_not_tell_apart(self, calls: Calls) -> None:
        start = fresh_name().replace("-", "_")
        assert not created(calls, topic_of(f"{start}.a_b")).error_code
        for name in (f"{start}_a_b", f"{start}.a.b", f"{start}_a.b"):
            assert name_of(created(calls, topic_of(name)).error_code) == "INVALID_TOPIC_EXCEPTION"

    def test_the_metadata_log_is_no_topic(self, calls: Calls) -> None:
        """A topic of this name would live in the metadata log's own directory."""
        name = "__cluster_metadata"
        assert name_of(created(calls, topic_of(name)).error_code) == "INVALID_REQUEST"
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
        assert (
            name_of(one(calls.request(ApiKey.METADATA, 9, request).topics).error_code) == "UNKNOWN_TOPIC_OR_PARTITION"
        )
        assert TestDelete.delete(calls, DeleteTopicState(name=name)) == ["UNKNOWN_TOPIC_OR_PARTITION"]
        assert name_of(calls.read(name).error_code) == "UNKNOWN_TOPIC_OR_PARTITION"
        assert name_of(calls.produce(name, batch(b"x")).error_code) == "UNKNOWN_TOPIC_OR_PARTITION"

    def test_an_existing_topic_is_reported(self, calls: Calls) -> None:
        topic = topic_of()
        assert not created(calls, topic).error_code
        assert name_of(created(calls, topic).error_code) == "TOPIC_ALREADY_EXISTS"
        assert name_of(created(calls, topic, validate_only=True).error_code) == "TOPIC_ALREADY_EXISTS"

    def test_the_same_name_twice_in_one_request(self, calls: Calls) -> None:
        topic = topic_of()
        request = CreateTopicsRequest(topics=[topic, topic], timeout_ms=30_000)
        answers = calls.request(ApiKey.CREATE_TOPICS, 7, request).topics
        assert {name_of(answer.error_code) for answer in answers} == {"INVALID_REQUEST"}
        assert one(metadata(calls, topic.name).topics).error_code

    @pytest.mark.parametrize(
        ("partitions", "factor", "expected"),
        [
            (0, 1, "INVALID_PARTITIONS"),
            (-2, 1, "INVALID_PARTITIONS"),
            (2**31 - 1, 1, "POLICY_VIOLATION"),
            (10_001, 1, "POLICY_VIOLATION"),
            (1, 0, "INVALID_REPLICATION_FACTOR"),
            (1, -2, "INVALID_REPLICATION_FACTOR"),
            (1, 2, "INVALID_REPLICATION_FACTOR"),
            (1, 32767, "INVALID_REPLICATION_FACTOR"),
            (-(2**31), 1, "INVALID_PARTITIONS"),
        ],
    )
    def test_counts(self, calls: Calls, partitions: int, factor: int, expected: str) -> None:
        topic = topic_of(partitions=partitions, factor=factor)
        assert name_of(created(calls, topic).error_code) == expected
        assert name_of(one(metadata(calls, topic.name).topics).error_code) == "UNKNOWN_TOPIC_OR_PARTITION"

    def test_minus_one_is_the_brokers_default(self, calls: Calls) -> None:
        answer = created(calls, topic_of(partitions=-1, factor=-1))
        assert (answer.error_code, answer.num_partitions, answer.replication_factor) == (0, 1, 1)

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("no_such_config", "1"),
            ("retention_ms", "soon"),
            ("retention_ms", "-2"),
            ("cleanup_policy", "shred"),
            ("segment_bytes", "1"),
            ("compression_type", "rar"),
            ("min_insync_replicas", "0"),
            ("retention_ms", None),
        ],
    )
    def test_settings(self, calls: Calls, key: str, value: str | None) -> None:
        configs: dict[str, Any] = {key: value}
        assert name_of(created(calls, topic_of(**configs)).error_code) == "INVALID_CONFIG"

    def test_only_checked_is_not_made(self, calls: Calls) -> None:
        topic = topic_of(partitions=4)
        answer = created(calls, topic, validate_only=True)
        assert (answer.error_code, answer.num_partitions) == (0, 4)
        assert name_of(one(metadata(calls, topic.name).topics).error_code) == "UNKNOWN_TOPIC_OR_PARTITION"

    def test_each_topic_on_its_own(self, calls: Calls) -> None:
        topics = [topic_of(), topic_of("no good"), topic_of(), topic_of(partitions=0)]
        codes = [name_of(answer.error_code) for answer in create(calls, *topics)]
        assert codes == ["NONE", "INVALID_TOPIC_EXCEPTION", "NONE", "INVALID_PARTITIONS"]

    @pytest.mark.parametrize(
        ("assigned", "expected"),
        [
            ({0: [1], 1: [1]}, "NONE"),
            ({0: [1], 2: [1]}, "INVALID_REPLICA_ASSIGNMENT"),
            ({0: [9]}, "INVALID_REPLICA_ASSIGNMENT"),
            ({0: [1, 1]}, "INVALID_REPLICA_ASSIGNMENT"),
            ({0: []}, "INVALID_REPLICA_ASSIGNMENT"),
            ({-1: [1]}, "INVALID_REPLICA_ASSIGNMENT"),
        ],
    )
    def test_replicas_by_hand(self, calls: Calls, assigned: dict[int, list[int]], expected: str) -> None:
        topic = topic_of(partitions=-1, factor=-1)
        topic.assignments = [CreatableReplicaAssignment(partition_index=p, broker_ids=b) for p, b in assigned.items()]
        answer = created(calls, topic)
        assert name_of(answer.error_code) == expected
        if expected == "NONE":
            assert answer.num_partitions == len(assigned)

    def test_replicas_by_hand_leave_no_count_to_choose(self, calls: Calls) -> None:
        topic = topic_of(partitions=1, factor=1)
        topic.assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
        assert name_of(created(calls, topic).error_code) == "INVALID_REQUEST"


class TestCreatePartitions:
    @staticmethod
    def grow(calls: Calls, topic: str, count: int, assigned: list[list[int]] | None = None, **fields: Any) -> str:
        by_hand = None if assigned is None else [CreatePartitionsAssignment(broker_ids=each) for each in assigned]
        wanted = CreatePartitionsTopic(name=topic, count=count, assignments=by_hand)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=30_000, **fields)
        return name_of(one(calls.request(ApiKey.CREATE_PARTITIONS, 3, request).results).error_code)

    def test_a_topic_grows_and_keeps_what_it_has(self, calls: Calls) -> None:
        topic = calls.create_topic()
        calls.fill(topic, 2)
        assert self.grow(calls, topic, 3) == "NONE"
        calls.wait_for_leaders(topic, 3)
        assert [calls.list_end(topic, partition) for partition in range(3)] == [2, 0, 0]
        assert self.grow(calls, topic, 4, [[1]]) == "NONE"
        calls.wait_for_leaders(topic, 4)
        assert len(one(metadata(calls, topic).topics).partitions) == 4

    @pytest.mark.parametrize(
        ("count", "assigned", "expected"),
        [
            (2, None, "INVALID_PARTITIONS"),
            (1, None, "INVALID_PARTITIONS"),
            (0, None, "INVALID_PARTITIONS"),
            (-1, None, "INVALID_PARTITIONS"),
            pytest.param(2**31 - 1, None, "POLICY_VIOLATION", marks=only_ours),  # Kafka overflows
            (3, [[1], [1]], "INVALID_REPLICA_ASSIGNMENT"),
            (4, [[1]], "INVALID_REPLICA_ASSIGNMENT"),
            (3, [[7]], "INVALID_REPLICA_ASSIGNMENT"),
            (3, [[1, 1]], "INVALID_REPLICA_ASSIGNMENT"),
            (3, [[]], "INVALID_REPLICA_ASSIGNMENT"),
        ],
    )
    def test_bad_counts_and_replicas(
        self, calls: Calls, count: int, assigned: list[list[int]] | None, expected: str
    ) -> None:
        topic = calls.create_topic(2)
        assert self.grow(calls, topic, count, assigned) == expected
        assert len(one(metadata(calls, topic).topics).partitions) == 2

    def test_only_checked_is_not_done(self, calls: Calls) -> None:
        topic = calls.create_topic()
        assert self.grow(calls, topic, 2, validate_only=True) == "NONE"
        assert len(one(metadata(calls, topic).topics).partitions) == 1

    def test_of_no_topic(self, calls: Calls) -> None:
        assert self.grow(calls, fresh_name(), 2) == "UNKNOWN_TOPIC_OR_PARTITION"


class TestDelete:
    @staticmethod
    def delete(calls: Calls, *topics: DeleteTopicState) -> list[str]:
        request = DeleteTopicsRequest(topics=list(topics), timeout_ms=30_000)
        answers = calls.request(ApiKey.DELETE_TOPICS, 6, request).responses
        return [name_of(answer.error_code) for answer in answers]

    def test_by_name_and_by_id(self, calls: Calls) -> None:
        first, second = calls.create_topic(), calls.create_topic()
        by_id = DeleteTopicState(name=None, topic_id=calls.topic_id(second))
        assert self.delete(calls, DeleteTopicState(name=first), by_id) == ["NONE", "NONE"]
        for name in (first, second):
            assert name_of(one(metadata(calls, name).topics).error_code) == "UNKNOWN_TOPIC_OR_PARTITION"
            assert name_of(calls.read(name).error_code) == "UNKNOWN_TOPIC_OR_PARTITION"

    def test_unknown_topics_are_reported(self, calls: Calls) -> None:
        assert self.delete(calls, DeleteTopicState(name=fresh_name())) == ["UNKNOWN_TOPIC_OR_PARTITION"]
        assert self.delete(calls, DeleteTopicState(name=None, topic_id=uuid4())) == ["UNKNOWN_TOPIC_ID"]

    def test_neither_or_both_of_name_and_id(self, calls: Calls) -> None:
        topic = calls.create_topic()
        both = DeleteTopicState(name=topic, topic_id=calls.topic_id(topic))
        assert self.delete(calls, both) == ["INVALID_REQUEST"]
        assert self.delete(calls, DeleteTopicState(name=None)) == ["INVALID_REQUEST"]
        assert not one(metadata(calls, topic).topics).error_code

    def test_the_same_topic_twice(self, calls: Calls) -> None:
        topic = calls.create_topic()
        absent = DeleteTopicState(name=fresh_name())
        assert set(self.delete(calls, absent, absent)) == {"INVALID_REQUEST"}
        codes = self.delete(calls, DeleteTopicState(name=topic), DeleteTopicState(name=topic))
        assert set(codes) == {"INVALID_REQUEST"}
        by_id = DeleteTopicState(name=None, topic_id=calls.topic_id(topic))
        assert "INVALID_REQUEST" in self.delete(calls, DeleteTopicState(name=topic), by_id)
        assert not one(metadata(calls, topic).topics).error_code, "an ambiguous request deletes nothing"

    def test_the_name_is_free_again_and_the_old_records_gone(self, calls: Calls) -> None:
        topic = calls.create_topic()
        calls.fill(topic, 3)
        old = calls.topic_id(topic)
        assert self.delete(calls, DeleteTopicState(name=topic)) == ["NONE"]
        calls.create_topic(name=topic)
        assert calls.topic_id(topic) != old
        assert calls.list_end(topic) == 0

    def test_its_settings_die_with_it(self, calls: Calls) -> None:
        topic = calls.create_topic(max_message_bytes=100)
        self.delete(calls, DeleteTopicState(name=topic))
        calls.create_topic(name=topic)
        calls.fill(topic, 1, 5000)


class TestMetadata:
    def test_the_cluster(self, calls: Calls, node: Node) -> None:
        answer = metadata(calls)
        assert answer.topics == []
        broker = one(answer.brokers)
        assert (broker.node_id, broker.host, broker.port) == (1, "127.0.0.1", node.port)
        assert answer.controller_id == 1
        assert len(answer.cluster_id or "") == 22, "16 bytes in base 64"

    def test_all_topics(self, calls: Calls) -> None:
        topic = calls.create_topic(2)
        everything = calls.request(ApiKey.METADATA, 12, MetadataRequest(topics=None))
        found = one([each for each in everything.topics if each.name == topic])
        assert [partition.partition_index for partition in found.partitions] == [0, 1]
        oldest = calls.request(ApiKey.METADATA, 0, MetadataRequest(topics=[]))
        assert topic in [each.name for each in oldest.topics], "in version 0 an empty list is all"

    def test_by_id(self, calls: Calls) -> None:
        topic = calls.create_topic()
        topic_id, unknown = calls.topic_id(topic), uuid4()
        asked = [MetadataRequestTopic(name=None, topic_id=each) for each in (topic_id, unknown)]
        answer = calls.request(ApiKey.METADATA, 12, MetadataRequest(topics=asked))
        found = {each.topic_id: (each.name, name_of(each.error_code)) for each in answer.topics}
        assert found == {topic_id: (topic, "NONE"), unknown: (None, "UNKNOWN_TOPIC_ID")}

    def test_a_name_is_answered_once(self, calls: Calls) -> None:
        topic, absent = calls.create_topic(), fresh_name()
        answer = metadata(calls, topic, absent, topic, absent)
        assert sorted(str(each.name) for each in answer.topics) == sorted([topic, absent])

    def test_ids_have_no_meaning_before_12_and_the_only_one_since(self, calls: Calls) -> None:
        topic = calls.create_topic()
        topic_id = calls.topic_id(topic)
        asked = [MetadataRequestTopic(name=topic, topic_id=topic_id), MetadataRequestTopic(name="other")]
        for version in (10, 11):
            answer = calls.request(
                ApiKey.METADATA, version, MetadataRequest(topics=asked, allow_auto_topic_creation=False)
            )
            assert {name_of(each.error_code) for each in answer.topics} == {"INVALID_REQUEST"}
        answer = calls.request(ApiKey.METADATA, 12, MetadataRequest(topics=asked, allow_auto_topic_creation=False))
        assert [(each.name, each.error_code) for each in answer.topics] == [(topic, 0)]

    @pytest.mark.parametrize("name", ["", "..", "a" * 250, "a b", "a\x00"])
    def test_bad_names(self, calls: Calls, name: str) -> None:
        for allowed in (False, True):
            request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=allowed)
            answer = one(calls.request(ApiKey.METADATA, 9, request).topics)
            assert name_of(answer.error_code) == "INVALID_TOPIC_EXCEPTION"

    def test_authorized_operations_are_reported_on_request(self, calls: Calls) -> None:
        topic = calls.create_topic()
        quiet = metadata(calls, topic, version=10)
        assert one(quiet.topics).topic_authorized_operations == -(2**31)
        assert quiet.cluster_authorized_operations == -(2**31)
        reported = metadata(
            calls,
            topic,
            version=10,
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
        )
        assert one(reported.topics).topic_authorized_operations == 0b110111111000 & ~(1 << 9)
        assert reported.cluster_authorized_operations == 0b1111110100000

    def test_a_topic_is_made_on_first_use(self, calls: Calls) -> None:
        name = fresh_name("auto")
        forbidden = one(metadata(calls, name).topics)
        assert name_of(forbidden.error_code) == "UNKNOWN_TOPIC_OR_PARTITION"
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
        first = one(calls.request(ApiKey.METADATA, 9, request).topics)
        assert name_of(first.error_code) in ("NONE", "UNKNOWN_TOPIC_OR_PARTITION")
        while one(metadata(calls, name).topics).error_code:
            pass
        assert len(one(metadata(calls, name).topics).partitions) == 1

    @only_ours  # Kafka answers that it is not there yet
    def test_the_first_answer_has_the_topic_already(self, calls: Calls) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=fresh_name())], allow_auto_topic_creation=True)
        topic = one(calls.request(ApiKey.METADATA, 9, request).topics)
        assert (topic.error_code, topic.partitions[0].leader_id) == (0, 1)

    def test_not_where_the_broker_forbids_it(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        settings: dict[str, object] = {"auto.create.topics.enable": "false"}
        with Node(tmp_path_factory.mktemp("node"), settings) as strict, Calls(strict.port) as calls:
            request = MetadataRequest(topics=[MetadataRequestTopic(name="never")], allow_auto_topic_creation=True)
            for _ in range(2):
                topic = one(calls.request(ApiKey.METADATA, 9, request).topics)
                assert name_of(topic.error_code) == "UNKNOWN_TOPIC_OR_PARTITION"


@pytest.fixture(scope="module")
def three(node: Node) -> list[str]:
    """Topics in the order of their names, of 2, 3 and 1 partitions."""
    with Calls(node.port) as calls:
        start = fresh_name("page")
        return [calls.create_topic(count, name=f"{start}{end}") for end, count in (("a", 2), ("b", 3), ("c", 1))]


class TestDescribeTopicPartitions:
    @staticmethod
    def request(
        calls: Calls, *topics: str, limit: int = 2000, cursor: tuple[str, int] | None = None
    ) -> DescribeTopicPartitionsResponse:
        request = describe_request.DescribeTopicPartitionsRequest(
            topics=[describe_request.TopicRequest(name=topic) for topic in topics],
            response_partition_limit=limit,
            cursor=None if cursor is None else describe_request.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
        )
        answer: DescribeTopicPartitionsResponse = calls.request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request)
        return answer

    @staticmethod
    def shape(answer: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
        return [(topic.name, [p.partition_index for p in topic.partitions]) for topic in answer.topics]

    def test_all_of_it(self, calls: Calls, three: list[str]) -> None:
        answer = self.request(calls, *reversed(three))
        assert self.shape(answer) == [(three[0], [0, 1]), (three[1], [0, 1, 2]), (three[2], [0])]
        assert answer.next_cursor is None
        assert [topic.topic_id for topic in answer.topics] == [calls.topic_id(topic) for topic in three]
        partition = answer.topics[0].partitions[0]
        assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (1, [1], [1])

    def test_page_by_page(self, calls: Calls, three: list[str]) -> None:
        pages, cursor = [], None
        for _ in range(10):
            answer = self.request(calls, *three, limit=2, cursor=cursor)
            pages.append(self.shape(answer))
            if answer.next_cursor is None:
                break
            cursor = (answer.next_cursor.topic_name, answer.next_cursor.partition_index)
        a, b, c = three
        assert [[topic for topic in page if topic[1]] for page in pages] == [
            [(a, [0, 1])],
            [(b, [0, 1])],
            [(b, [2]), (c, [0])],
        ]

    def test_all_topics_where_none_is_named(self, calls: Calls, three: list[str]) -> None:
        names = [name for name, _ in self.shape(self.request(calls))]
        assert set(three) <= set(names)
        assert names == sorted(names, key=str)

    def test_unknown_topics_are_reported(self, calls: Calls) -> None:
        absent = fresh_name()
        answer = one(self.request(calls, absent).topics)
        assert (answer.name, name_of(answer.error_code)) == (absent, "UNKNOWN_TOPIC_OR_PARTITION")
        bad = one(self.request(calls, "no good").topics)
        assert name_of(bad.error_code) == "INVALID_TOPIC_EXCEPTION"

    @pytest.mark.parametrize("limit", [0, -1, 2**31 - 1])
    def test_odd_limits(self, calls: Calls, three: list[str], limit: int) -> None:
        assert self.shape(self.request(calls, three[0], limit=limit))[0][0] == three[0]

    @pytest.mark.parametrize("cursor", [("b", -1), ("b", -(2**31)), ("not named", 0)])
    def test_cursors_that_cannot_be(self, calls: Calls, three: list[str], cursor: tuple[str, int]) -> None:
        start = (three[1] if cursor[0] == "b" else cursor[0], cursor[1])
        answer = self.request(calls, *three, cursor=start)
        assert {name_of(topic.error_code) for topic in answer.topics} == {"INVALID_REQUEST"}
        assert len(answer.topics) == 3

    @pytest.mark.parametrize("partition", [3, 99, pytest.param(2**31 - 1, marks=only_ours)])
    def test_odd_cursors(self, calls: Calls, three: list[str], partition: int) -> None:
        answer = self.request(calls, *three, cursor=(three[1], partition))
        assert three[2] in [name for name, _ in self.shape(answer)]
