"""A request of a hundred thousand names: others are served while it is answered.

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
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest, TopicRequest
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
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
from odradek.protocol.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.server.broker import Broker
from odradek.server.context import RequestContext
from odradek.testing.faults import NetworkLinks
from odradek.testing.node_thread import NodeThread
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
            codec.decode(API[api_key].response, codec.encode(outcome, version), version)
            return outcome
        finally:
            writer.close()
            await writer.wait_closed()

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


@pytest.mark.parametrize(
    ("api_key", "version", "request_"),
    [
        (ApiKey.METADATA, 12, MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in NAMES])),
        (ApiKey.METADATA, 12, MetadataRequest(topics=None)),
        (ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(key_type=0, coordinator_keys=NAMES)),
        (
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            0,
            DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in NAMES]),
        ),
        (
            ApiKey.DESCRIBE_CONFIGS,
            4,
            DescribeConfigsRequest(
                resources=[DescribeConfigsResource(resource_type=TOPIC, resource_name=name) for name in TOPICS]
            ),
        ),
        (
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
        (
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
        (
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
        (
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="t",
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPICS[0], partitions=list(PARTITIONS))],
            ),
        ),
        (
            ApiKey.LEAVE_GROUP,
            4,
            LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=name) for name in NAMES]),
        ),
    ],
    ids=[
        "Metadata of names",
        "Metadata of all",
        "FindCoordinator",
        "DescribeTopicPartitions",
        "DescribeConfigs",
        "OffsetCommit",
        "OffsetDelete",
        "TxnOffsetCommit",
        "AddPartitionsToTxn",
        "LeaveGroup",
    ],
)
def test_others_are_served_in_between(
    thread: NodeThread, meanwhile: Meanwhile, api_key: ApiKey, version: int, request_: Any
) -> None:
    thread.call(meanwhile.answer(api_key, version, request_))
    assert meanwhile.answered >= 1
    assert meanwhile.turns >= (1 if request_ == MetadataRequest(topics=None) else 5)


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
