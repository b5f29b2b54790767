"""A request of very many names, partitions or batches: others are served while it is answered.

The requests are handled on the loop of a node inside this process, where another client asks one small question after
the other: some of those are answered until the long answer is there. How many depends on how soon the system hands
bytes on; how often the loop looks for them meanwhile does not.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.common.errors import ErrorCode
from odradek.protocol import codec
from odradek.protocol.apis import API, ApiKey
from odradek.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from odradek.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.delete_groups_request import DeleteGroupsRequest
from odradek.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.describe_groups_request import DescribeGroupsRequest
from odradek.protocol.messages.describe_producers_request import DescribeProducersRequest
from odradek.protocol.messages.describe_producers_request import TopicRequest as DescribeProducersTopic
from odradek.protocol.messages.describe_quorum_request import DescribeQuorumRequest
from odradek.protocol.messages.describe_quorum_request import PartitionData as QuorumPartition
from odradek.protocol.messages.describe_quorum_request import TopicData as QuorumTopic
from odradek.protocol.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest, TopicRequest
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.server.broker import Broker
from odradek.server.context import RequestContext
from odradek.server.pending_response import PendingResponse
from odradek.testing.faults import NetworkLinks
from odradek.testing.node_thread import NodeThread
from tests.support.clients.api_calls import batch, fetch_request, fetch_topic, produce_request
from tests.support.models.large_requests import BOUNDED, write_txn_markers
from tests.support.nodes.node import free_port
from tests.support.waiting import eventually

NAMES = [f"name-{number}" for number in range(20_000)]
PARTITIONS = range(1, 20_001)
TOPICS = [f"topic-{number}" for number in range(600)]
BROKER, TOPIC = 4, 2
QUESTION = struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, 7, -1)


@pytest.fixture(scope="module")
def thread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeThread]:
    directory: Path = tmp_path_factory.mktemp("node")
    node = NodeThread(1, NetworkLinks())
    port, controller_port = free_port(), free_port()
    overrides = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "log.dirs": directory / "data",
        "offsets.topic.num.partitions": 1,
        "auto.create.topics.enable": "false",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    try:
        node.begin(None, [f"{key}={value}" for key, value in overrides.items()]).result(60)
        created = CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in TOPICS],
            timeout_ms=60_000,
        )
        node.call(Meanwhile(node.broker, port).answer(ApiKey.CREATE_TOPICS, 7, created))
        coordinator = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        node.call(Meanwhile(node.broker, port).answer(ApiKey.FIND_COORDINATOR, 4, coordinator))
        ready = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[])])

        def is_loaded() -> bool:
            answer = node.call(Meanwhile(node.broker, port).answer(ApiKey.OFFSET_FETCH, 8, ready))
            return not answer.groups[0].error_code

        eventually(is_loaded)
        yield node
    finally:
        node.stop(skip_controlled_shutdown=True)


class Meanwhile:
    """One request on the loop of the node, and until its end: how many small ones of another client were answered, and
    how many turns the loop made."""

    def __init__(self, broker: Broker, port: int) -> None:
        self._broker = broker
        self._port = port
        self.answered = self.turns = 0

    async def answer(self, api_key: ApiKey, version: int, request: Any) -> Any:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            await self._request(reader, writer)
            connection = next(iter(self._broker.dispatcher.connections))
            context = RequestContext(self._broker.services, connection, api_key, version, 1, "test")
            outcome = self._broker.dispatcher.routes["broker"][api_key].handle(context, request)
            if asyncio.iscoroutine(outcome):
                outcome = asyncio.get_running_loop().create_task(outcome)
                counting = asyncio.get_running_loop().create_task(self._count_turns(outcome))
                while not outcome.done():
                    await self._request(reader, writer)
                    self.answered += 1
                await counting
                outcome = outcome.result()
            if isinstance(outcome, PendingResponse):
                outcome = await outcome
            codec.decode(API[api_key].response, codec.encode(outcome, version), version)
            return outcome
        finally:
            writer.close()
            await writer.wait_closed()

    async def waits(self, broker: Broker) -> None:
        """Return when a long poll waits for data."""
        while not broker.services.replicas.parked_fetch_count:  # noqa: ASYNC110 - the broker has no event of it
            await asyncio.sleep(0.01)

    async def _count_turns(self, outcome: asyncio.Task[Any]) -> None:
        while not outcome.done():
            await asyncio.sleep(0)
            self.turns += 1

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(QUESTION)
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        await reader.readexactly(size)


@pytest.fixture
def meanwhile(thread: NodeThread) -> Meanwhile:
    return Meanwhile(thread.broker, int(thread.broker.bootstrap_address().rpartition(":")[2]))


# Of each: the API, its version, and the request.
CASES: dict[str, tuple[ApiKey, int, Any]] = {
    "Metadata of names": (
        ApiKey.METADATA,
        12,
        MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in NAMES]),
    ),
    "Metadata of all": (ApiKey.METADATA, 12, MetadataRequest(topics=None)),
    "FindCoordinator": (ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(key_type=0, coordinator_keys=NAMES)),
    "DescribeTopicPartitions": (
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in NAMES]),
    ),
    "DescribeConfigs": (
        ApiKey.DESCRIBE_CONFIGS,
        4,
        DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=TOPIC, resource_name=name) for name in TOPICS]
        ),
    ),
    "OffsetCommit": (
        ApiKey.OFFSET_COMMIT,
        9,
        OffsetCommitRequest(
            group_id="g",
            topics=[
                OffsetCommitRequestTopic(
                    name=TOPICS[0],
                    partitions=[OffsetCommitRequestPartition(partition_index=each) for each in PARTITIONS],
                )
            ],
        ),
    ),
    "OffsetDelete": (
        ApiKey.OFFSET_DELETE,
        0,
        OffsetDeleteRequest(
            group_id="g",
            topics=[
                OffsetDeleteRequestTopic(
                    name=TOPICS[0],
                    partitions=[OffsetDeleteRequestPartition(partition_index=each) for each in PARTITIONS],
                )
            ],
        ),
    ),
    "TxnOffsetCommit": (
        ApiKey.TXN_OFFSET_COMMIT,
        5,
        TxnOffsetCommitRequest(
            group_id="g",
            transactional_id="t",
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=TOPICS[0],
                    partitions=[TxnOffsetCommitRequestPartition(partition_index=each) for each in PARTITIONS],
                )
            ],
        ),
    ),
    "AddPartitionsToTxn": (
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t",
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPICS[0], partitions=list(PARTITIONS))],
        ),
    ),
    "LeaveGroup": (
        ApiKey.LEAVE_GROUP,
        4,
        LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=name) for name in NAMES]),
    ),
    "Produce of batches": (
        ApiKey.PRODUCE,
        11,
        ProduceRequest(
            acks=1,
            timeout_ms=60_000,
            topic_data=[
                TopicProduceData(
                    name=TOPICS[1],
                    partition_data=[PartitionProduceData(index=0, records=batch(*[b""] * 1990, key=None))] * 60,
                )
            ],
        ),
    ),
    "Produce without records": (
        ApiKey.PRODUCE,
        11,
        ProduceRequest(
            acks=1,
            timeout_ms=60_000,
            topic_data=[
                TopicProduceData(
                    name=TOPICS[0],
                    partition_data=[PartitionProduceData(index=each, records=None) for each in PARTITIONS],
                )
            ],
        ),
    ),
    "Fetch": (
        ApiKey.FETCH,
        12,
        fetch_request(fetch_topic(TOPICS[0], dict.fromkeys(range(20_000), 0)), max_wait_ms=100),
    ),
    "ListOffsets": (
        ApiKey.LIST_OFFSETS,
        7,
        ListOffsetsRequest(
            topics=[
                ListOffsetsTopic(
                    name=TOPICS[0],
                    partitions=[ListOffsetsPartition(partition_index=each, timestamp=-1) for each in PARTITIONS],
                )
            ]
        ),
    ),
    "OffsetForLeaderEpoch": (
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        4,
        OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderTopic(
                    topic=TOPICS[0],
                    partitions=[OffsetForLeaderPartition(partition=each, leader_epoch=0) for each in PARTITIONS],
                )
            ]
        ),
    ),
    "DescribeProducers": (
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        DescribeProducersRequest(
            topics=[DescribeProducersTopic(name=TOPICS[0], partition_indexes=list(PARTITIONS))],
        ),
    ),
    "DeleteRecords": (
        ApiKey.DELETE_RECORDS,
        2,
        DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=TOPICS[0],
                    partitions=[DeleteRecordsPartition(partition_index=each, offset=-1) for each in PARTITIONS],
                )
            ],
            timeout_ms=60_000,
        ),
    ),
    "OffsetFetch": (
        ApiKey.OFFSET_FETCH,
        8,
        OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id="g",
                    topics=[OffsetFetchRequestTopics(name=TOPICS[0], partition_indexes=list(PARTITIONS))],
                )
            ]
        ),
    ),
    "DescribeQuorum": (
        ApiKey.DESCRIBE_QUORUM,
        2,
        DescribeQuorumRequest(
            topics=[QuorumTopic(topic_name=name, partitions=[QuorumPartition(partition_index=0)]) for name in NAMES]
        ),
    ),
    "DescribeGroups": (ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=NAMES)),
    "ConsumerGroupDescribe": (ApiKey.CONSUMER_GROUP_DESCRIBE, 1, ConsumerGroupDescribeRequest(group_ids=NAMES)),
    "DeleteGroups": (ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=NAMES)),
    "OffsetCommit of topics": (
        ApiKey.OFFSET_COMMIT,
        9,
        OffsetCommitRequest(
            group_id="g", topics=[OffsetCommitRequestTopic(name=name, partitions=[]) for name in NAMES]
        ),
    ),
    "OffsetDelete of topics": (
        ApiKey.OFFSET_DELETE,
        0,
        OffsetDeleteRequest(
            group_id="g", topics=[OffsetDeleteRequestTopic(name=name, partitions=[]) for name in NAMES]
        ),
    ),
    "AddPartitionsToTxn of topics": (
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t",
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=[]) for name in NAMES],
        ),
    ),
    "WriteTxnMarkers": (ApiKey.WRITE_TXN_MARKERS, 1, write_txn_markers(20_000)),
    "CreateTopics that are too many": (
        ApiKey.CREATE_TOPICS,
        7,
        CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1) for name in NAMES]),
    ),
}


@pytest.mark.parametrize(("api_key", "version", "request_"), CASES.values(), ids=CASES.keys())
def test_others_are_served_in_between(
    thread: NodeThread, meanwhile: Meanwhile, api_key: ApiKey, version: int, request_: Any
) -> None:
    thread.call(meanwhile.answer(api_key, version, request_))
    assert meanwhile.answered >= 1
    assert meanwhile.turns >= (1 if request_ == MetadataRequest(topics=None) else 5)


@pytest.mark.parametrize("name", BOUNDED)
def test_as_many_entries_as_allowed_take_turns(thread: NodeThread, meanwhile: Meanwhile, name: str) -> None:
    api_key, version, request = BOUNDED[name]
    answer = thread.call(meanwhile.answer(api_key, version, request(10_000)))
    assert ErrorCode.POLICY_VIOLATION not in codes_of(answer)
    assert meanwhile.turns >= (5 if name == "AlterConfigs" else 40), "a resource is decided in one turn"


@pytest.mark.parametrize("name", BOUNDED)
def test_more_entries_are_refused_and_others_served(thread: NodeThread, meanwhile: Meanwhile, name: str) -> None:
    """Others are served in between where each entry is answered by its name."""
    api_key, version, request = BOUNDED[name]
    answer = thread.call(meanwhile.answer(api_key, version, request(20_000)))
    assert codes_of(answer) == {ErrorCode.POLICY_VIOLATION}
    # Two resources, and the results of ACLs, which have no names, are answered at once.
    if name not in ("AlterConfigs", "CreateAcls", "DeleteAcls"):
        assert meanwhile.turns >= 5


def codes_of(answer: Any) -> set[int]:
    """The error codes of the elements of a response, and of the elements' own."""
    codes: set[int] = set()
    for spec in answer.FIELDS:
        value = getattr(answer, spec.name)
        if spec.name == "error_code":
            codes.add(value)
        elif spec.wire_type == "array":
            codes.update(*(codes_of(each) for each in value or () if hasattr(each, "FIELDS")))
    return codes - {ErrorCode.NONE}


def test_many_commits_are_answered_in_the_order_of_the_request(thread: NodeThread, meanwhile: Meanwhile) -> None:
    """Existing resources are stored or refused together, each with its own result."""
    wanted = [
        OffsetCommitRequestTopic(
            name=name, partitions=[OffsetCommitRequestPartition(partition_index=each, committed_offset=9)]
        )
        for name in [*TOPICS, "not-there", TOPICS[0]]
        for each in (0, 1)
    ]
    request = OffsetCommitRequest(group_id="orders", topics=wanted)
    answer = thread.call(meanwhile.answer(ApiKey.OFFSET_COMMIT, 9, request))
    assert [each.name for each in answer.topics] == [each.name for each in wanted]
    codes = [each.partitions[0].error_code for each in answer.topics]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [ErrorCode.NONE, unknown] * len(TOPICS) + [unknown] * 2 + [ErrorCode.NONE, unknown]
    too_many = [OffsetCommitRequestPartition(partition_index=each % 2) for each in range(60_000)]
    request = OffsetCommitRequest(
        group_id="too-many", topics=[OffsetCommitRequestTopic(name=TOPICS[0], partitions=too_many)]
    )
    (topic,) = thread.call(meanwhile.answer(ApiKey.OFFSET_COMMIT, 9, request)).topics
    reported = sorted((each.partition_index, each.error_code) for each in topic.partitions)
    assert reported == [(0, ErrorCode.UNKNOWN_SERVER_ERROR)] * 30_000 + [(1, unknown)] * 30_000


def test_many_batches_are_appended_in_the_order_of_the_request(thread: NodeThread, meanwhile: Meanwhile) -> None:
    data = [PartitionProduceData(index=0, records=batch(b"%d" % number)) for number in range(1000)]
    request = ProduceRequest(
        acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(name=TOPICS[2], partition_data=data)]
    )
    (topic,) = thread.call(meanwhile.answer(ApiKey.PRODUCE, 11, request)).responses
    assert [(each.error_code, each.base_offset) for each in topic.partition_responses] == [
        (ErrorCode.NONE, number) for number in range(1000)
    ]


def test_a_long_fetch_waits_for_data_and_answers_each_partition_once(thread: NodeThread, meanwhile: Meanwhile) -> None:
    """A partition that the request names again is read once, as its last naming has it, as in Kafka."""
    request = fetch_request(fetch_topic(TOPICS[3], dict.fromkeys(range(5000), 0)), max_wait_ms=60_000, min_bytes=1)
    request.topics += request.topics
    produce = produce_request(TOPICS[3], batch(b"late"))
    other = Meanwhile(thread.broker, int(thread.broker.bootstrap_address().rpartition(":")[2]))

    async def both() -> Any:
        fetched = asyncio.get_running_loop().create_task(meanwhile.answer(ApiKey.FETCH, 12, request))
        await meanwhile.waits(thread.broker)
        await other.answer(ApiKey.PRODUCE, 11, produce)
        return await fetched

    answer = thread.call(both())
    partitions = [each for topic in answer.responses for each in topic.partitions]
    assert [each.partition_index for each in partitions] == list(range(5000))
    assert {each.error_code for each in partitions[1:]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert partitions[0].records.size_bytes == len(batch(b"late"))


def test_a_fetch_of_far_more_partitions_than_exist_gets_no_session(thread: NodeThread, meanwhile: Meanwhile) -> None:
    """A session would hold the memory of all of them for as long as it lasts."""
    known = fetch_request(fetch_topic(TOPICS[4], {0: 0}), session_epoch=0)
    unknown = fetch_request(fetch_topic(TOPICS[4], dict.fromkeys(range(20_000), 0)), session_epoch=0)
    begun = thread.call(meanwhile.answer(ApiKey.FETCH, 12, known))
    assert begun.session_id
    assert not thread.call(meanwhile.answer(ApiKey.FETCH, 12, unknown)).session_id
    unknown.session_id, unknown.session_epoch = begun.session_id, 1
    answer = thread.call(meanwhile.answer(ApiKey.FETCH, 12, unknown))
    assert (answer.error_code, answer.session_id) == (ErrorCode.NONE, 0)
    known.session_id, known.session_epoch = begun.session_id, 2
    assert thread.call(meanwhile.answer(ApiKey.FETCH, 12, known)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_many_offsets_are_fetched_in_the_order_of_the_request(thread: NodeThread, meanwhile: Meanwhile) -> None:
    commit = OffsetCommitRequest(
        group_id="fetched",
        topics=[
            OffsetCommitRequestTopic(
                name=TOPICS[5], partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=7)]
            )
        ],
    )
    thread.call(meanwhile.answer(ApiKey.OFFSET_COMMIT, 9, commit))
    asked = [("not-there", range(1500)), (TOPICS[5], range(3000)), (TOPICS[6], range(0)), (TOPICS[5], range(2))]
    topics = [OffsetFetchRequestTopics(name=name, partition_indexes=list(numbers)) for name, numbers in asked]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="fetched", topics=topics)])
    (group,) = thread.call(meanwhile.answer(ApiKey.OFFSET_FETCH, 8, request)).groups
    found = [(topic.name, [each.partition_index for each in topic.partitions]) for topic in group.topics]
    assert found == [(name, list(numbers)) for name, numbers in asked]
    committed = [each.committed_offset for topic in group.topics for each in topic.partitions]
    assert [place for place, offset in enumerate(committed) if offset == 7] == [1500, 4500]


def test_many_names_are_answered_as_few_are(thread: NodeThread, meanwhile: Meanwhile) -> None:
    asked = [*NAMES, TOPICS[0], "not legal!", NAMES[0]]
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in asked])
    found = {topic.name: topic for topic in thread.call(meanwhile.answer(ApiKey.METADATA, 12, request)).topics}
    assert list(found) == asked[:-1]
    assert [found[name].error_code for name in asked[-4:-1]] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    everything = thread.call(meanwhile.answer(ApiKey.METADATA, 12, MetadataRequest(topics=None)))
    assert {topic.name for topic in everything.topics} >= set(TOPICS)
    assert all(len(topic.partitions) for topic in everything.topics)


def test_a_resource_that_is_named_again_and_again_is_described_once(thread: NodeThread, meanwhile: Meanwhile) -> None:
    keys = [["log.retention.ms"], ["num.partitions", "log.retention.ms"]] * 100
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=each) for each in keys
        ]
    )
    (answer,) = thread.call(meanwhile.answer(ApiKey.DESCRIBE_CONFIGS, 4, request)).results
    assert {each.name for each in answer.configs} == {"log.retention.ms", "num.partitions"}
    request.resources.append(DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=None))
    (answer,) = thread.call(meanwhile.answer(ApiKey.DESCRIBE_CONFIGS, 4, request)).results
    assert len(answer.configs) > 100
