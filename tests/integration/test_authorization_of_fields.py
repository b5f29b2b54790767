"""Requests that name several resources: each is authorized by itself, and a forbidden one looks like a missing one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ErrorCode
from odradek.metadata.acls import CLUSTER_NAME, AclOperation, AclResourceType
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.messages.alter_configs_request import AlterConfigsRequest, AlterConfigsResource
from odradek.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.describe_cluster_request import DescribeClusterRequest
from odradek.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from odradek.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterConfigsResource as IncrementalResource,
)
from odradek.protocol.messages.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
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
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.testing.node_thread import NodeThread
from tests.support.clients.api_calls import (
    Calls,
    batch,
    error_codes,
    fetch_topic,
    fresh_name,
    produce_request,
)
from tests.support.nodes.permissions import Rule, allow_rules, node_in_process, port_of, remove_authorizer
from tests.support.waiting import eventually

pytestmark = pytest.mark.only_ours

TOPIC, GROUP, ID = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.TRANSACTIONAL_ID
CLUSTER = AclResourceType.CLUSTER
READ, WRITE, CREATE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE
ALTER, DESCRIBE = AclOperation.ALTER, AclOperation.DESCRIBE
NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeThread]:
    with node_in_process(tmp_path_factory.mktemp("node")) as node:
        yield node


@pytest.fixture
def calls(node: NodeThread) -> Iterator[Calls]:
    """A client that may do everything, until a test takes that away."""
    remove_authorizer(node)
    with Calls(port_of(node)) as calls:
        yield calls


def by_name(answers: Any, field: str = "name") -> dict[str, ErrorCode]:
    """The first error code below each answer of a list, by the answer's name."""
    return {getattr(each, field): ErrorCode(next(iter(error_codes(each)))) for each in answers}


# ---- topics beside a group or a transaction


def commit(*topics: str, group: str = "g") -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=3)
    named = [OffsetCommitRequestTopic(name=name, partitions=[partition]) for name in topics]
    return OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=named)


def test_offsets_are_those_of_topics_that_may_be_read(node: NodeThread, calls: Calls) -> None:
    mine, foreign, missing, group = calls.create_topic(), calls.create_topic(), fresh_name(), fresh_name("g")
    calls.find_coordinator(group)
    calls.request_until_loaded(ApiKey.OFFSET_COMMIT, 8, commit(foreign, group=group))

    allow_rules(node, (READ, GROUP, group), (DELETE, GROUP, group), (READ, TOPIC, mine))
    answer = calls.request(ApiKey.OFFSET_COMMIT, 8, commit(mine, foreign, missing, group=group))
    assert by_name(answer.topics) == {mine: ErrorCode.NONE, foreign: NO_TOPIC, missing: NO_TOPIC}

    asked = [OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in (foreign, mine, missing)]
    wanted = OffsetFetchRequestGroup(group_id=group, topics=asked)
    (found,) = calls.request(ApiKey.OFFSET_FETCH, 8, OffsetFetchRequest(groups=[wanted])).groups
    assert by_name(found.topics) == {mine: ErrorCode.NONE, foreign: NO_TOPIC, missing: NO_TOPIC}
    assert [each.partitions[0].committed_offset for each in found.topics] == [-1, 3, -1]
    wanted = OffsetFetchRequestGroup(group_id=group, topics=None)
    (found,) = calls.request(ApiKey.OFFSET_FETCH, 8, OffsetFetchRequest(groups=[wanted])).groups
    assert [each.name for each in found.topics] == [mine]

    delete = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
            for name in (mine, foreign, missing)
        ],
    )
    answer = calls.request(ApiKey.OFFSET_DELETE, 0, delete)
    assert {each.name: each.partitions[0].error_code for each in answer.topics} == {
        mine: ErrorCode.NONE,
        foreign: NO_TOPIC,
        missing: NO_TOPIC,
    }


def test_offsets_by_topic_id(node: NodeThread, calls: Calls) -> None:
    mine, foreign, group = calls.create_topic(), calls.create_topic(), fresh_name("g")
    ids = {name: calls.topic_id(name) for name in (mine, foreign)} | {"gone": UUID(int=77)}
    calls.find_coordinator(group)
    allow_rules(node, (READ, GROUP, group), (READ, TOPIC, mine))
    request = commit(mine, foreign, "gone", group=group)
    for topic in request.topics:
        topic.topic_id = ids[topic.name]
    expected = [ErrorCode.NONE, NO_TOPIC, ErrorCode.UNKNOWN_TOPIC_ID]
    answer = calls.request(ApiKey.OFFSET_COMMIT, 10, request)
    assert [each.partitions[0].error_code for each in answer.topics] == expected
    asked = [OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0]) for each in ids.values()]
    wanted = OffsetFetchRequestGroup(group_id=group, topics=asked)
    (found,) = calls.request(ApiKey.OFFSET_FETCH, 10, OffsetFetchRequest(groups=[wanted])).groups
    assert [each.partitions[0].error_code for each in found.topics] == expected
    assert [each.topic_id for each in found.topics] == list(ids.values())


def test_txn_offset_commit_needs_the_id_the_group_and_the_topic(node: NodeThread, calls: Calls) -> None:
    topic, group, name = calls.create_topic(), fresh_name("g"), fresh_name("id")

    def code(*rules: Rule) -> ErrorCode:
        allow_rules(node, *rules)
        partition = TxnOffsetCommitRequestPartition(partition_index=0)
        topics = [TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])]
        request = TxnOffsetCommitRequest(transactional_id=name, group_id=group, topics=topics)
        return ErrorCode(calls.request(ApiKey.TXN_OFFSET_COMMIT, 3, request).topics[0].partitions[0].error_code)

    of_id, of_group = (WRITE, ID, name), (READ, GROUP, group)
    assert code() is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert code(of_group, (READ, TOPIC, topic)) is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert code(of_id) is ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert code(of_id, of_group) is NO_TOPIC
    allowed = code(of_id, of_group, (READ, TOPIC, topic))
    assert not allowed.name.endswith("AUTHORIZATION_FAILED")


def add_partitions(version: int, name: str, *topics: str) -> AddPartitionsToTxnRequest:
    named = [AddPartitionsToTxnTopic(name=topic, partitions=[0]) for topic in topics]
    if version >= 4:
        asked = AddPartitionsToTxnTransaction(transactional_id=name, topics=named)
        return AddPartitionsToTxnRequest(transactions=[asked])
    return AddPartitionsToTxnRequest(v3_and_below_transactional_id=name, v3_and_below_topics=named)


@pytest.mark.parametrize("version", range(6))
def test_partitions_of_a_transaction_need_the_id_and_the_topics(node: NodeThread, calls: Calls, version: int) -> None:
    topic, other, name = calls.create_topic(), calls.create_topic(), fresh_name("id")

    def codes(*rules: Rule) -> list[int]:
        allow_rules(node, *rules)
        answer = calls.request(ApiKey.ADD_PARTITIONS_TO_TXN, version, add_partitions(version, name, topic, other))
        return [code for each in answer.results_by_topic_v3_and_below for code in error_codes(each)] or [
            answer.error_code
        ]

    if version >= 4:  # between brokers
        assert ErrorCode.CLUSTER_AUTHORIZATION_FAILED in codes((WRITE, ID, name), (WRITE, TOPIC, topic))
        assert ErrorCode.CLUSTER_AUTHORIZATION_FAILED not in codes((AclOperation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME))
        return
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert codes() == codes((WRITE, TOPIC, topic), (WRITE, TOPIC, other)) == [refused, refused]
    of_id = (WRITE, ID, name)
    assert codes(of_id, (WRITE, TOPIC, topic)) == [ErrorCode.OPERATION_NOT_ATTEMPTED, NO_TOPIC]
    assert not {refused, NO_TOPIC} & set(codes(of_id, (WRITE, TOPIC, topic), (WRITE, TOPIC, other)))


def test_no_client_makes_an_internal_topic_part_of_a_transaction(node: NodeThread, calls: Calls) -> None:
    name = fresh_name("id")
    for _ in range(2):
        answer = calls.request(ApiKey.ADD_PARTITIONS_TO_TXN, 3, add_partitions(3, name, "__consumer_offsets"))
        assert [code for each in answer.results_by_topic_v3_and_below for code in error_codes(each)] == [NO_TOPIC]
        allow_rules(node, (WRITE, ID, name), (WRITE, TOPIC, "*"))


# ---- records


def test_produce_refuses_forbidden_and_missing_topics_alike(node: NodeThread, calls: Calls) -> None:
    mine, foreign, missing = calls.create_topic(), calls.create_topic(), fresh_name()
    allow_rules(node, (WRITE, TOPIC, mine))
    request = produce_request(mine, batch(b"a"))
    for name in (foreign, missing):
        request.topic_data += produce_request(name, batch(b"a")).topic_data
    answer = calls.request(ApiKey.PRODUCE, 11, request)
    assert by_name(answer.responses) == {mine: ErrorCode.NONE, foreign: NO_TOPIC, missing: NO_TOPIC}
    remove_authorizer(node)
    assert (calls.list_end(mine), calls.list_end(foreign)) == (1, 0)


def test_fetch_refuses_forbidden_and_missing_topics_alike(node: NodeThread, calls: Calls) -> None:
    mine, foreign, missing = calls.create_topic(), calls.create_topic(), fresh_name()
    for name in (mine, foreign):
        calls.fill(name, 1)
    allow_rules(node, (READ, TOPIC, mine))
    answer = calls.fetch(*(fetch_topic(name, {0: 0}) for name in (mine, foreign, missing)))
    assert by_name(answer.responses, "topic") == {mine: ErrorCode.NONE, foreign: NO_TOPIC, missing: NO_TOPIC}
    assert [bool(each.partitions[0].records) for each in answer.responses] == [True, False, False]


def test_a_forbidden_topic_answers_a_waiting_fetch_at_once(node: NodeThread, calls: Calls) -> None:
    """Its session goes on, and the refusal is an answer."""
    mine, foreign = calls.create_topic(), calls.create_topic()
    allow_rules(node, (READ, TOPIC, mine))
    wanted = [fetch_topic(name, {0: 0}) for name in (mine, foreign)]
    answer = calls.fetch(*wanted, max_wait_ms=60_000, min_bytes=1)
    assert by_name(answer.responses, "topic") == {mine: ErrorCode.NONE, foreign: NO_TOPIC}


def test_a_follower_needs_cluster_action(node: NodeThread, calls: Calls) -> None:
    topic = calls.create_topic()
    allow_rules(node, (AclOperation.ALL, TOPIC, topic))
    missing = fresh_name()
    answer = calls.fetch(fetch_topic(topic, {0: 0}), fetch_topic(missing, {0: 0}), replica_id=1)
    assert by_name(answer.responses, "topic") == {topic: NO_TOPIC, missing: NO_TOPIC}
    allow_rules(node, (AclOperation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME))
    answer = calls.fetch(fetch_topic(topic, {0: 0}), replica_id=1)
    assert by_name(answer.responses, "topic")[topic] is not NO_TOPIC


def test_a_transaction_takes_in_only_what_its_producer_may_write(node: NodeThread, calls: Calls) -> None:
    mine, foreign, name = calls.create_topic(), calls.create_topic(), fresh_name("id")
    init = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    calls.request_until_loaded(ApiKey.FIND_COORDINATOR, 4, find_transaction(name))
    identity = calls.request_until_loaded(ApiKey.INIT_PRODUCER_ID, 5, init)
    records = batch(
        b"a",
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        sequence=0,
        transactional=True,
    )

    def produce(transactional_id: str | None = name) -> list[ErrorCode]:
        request = produce_request(mine, records, transactional_id=transactional_id)
        request.topic_data += produce_request(foreign, records).topic_data
        answer = calls.request_until_loaded(ApiKey.PRODUCE, 12, request)
        return [ErrorCode(each.partition_responses[0].error_code) for each in answer.responses]

    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    allow_rules(node, (WRITE, TOPIC, mine), (WRITE, TOPIC, foreign))
    assert produce() == [refused, refused]
    allow_rules(node, (WRITE, ID, name), (WRITE, TOPIC, mine))
    assert produce(None) == [refused, NO_TOPIC]  # of a batch that says so, whatever the request says (CVE-2018-17196)
    assert produce() == [ErrorCode.NONE, NO_TOPIC]
    remove_authorizer(node)
    (state,) = calls.request(
        ApiKey.DESCRIBE_TRANSACTIONS, 0, DescribeTransactionsRequest(transactional_ids=[name])
    ).transaction_states
    assert [each.topic for each in state.topics] == [mine]
    assert calls.list_end(foreign) == 0


def find_transaction(name: str) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key_type=1, coordinator_keys=[name])


# ---- metadata


def test_metadata_of_all_topics_has_those_that_may_be_described(node: NodeThread, calls: Calls) -> None:
    mine, foreign = calls.create_topic(), calls.create_topic()
    allow_rules(node, (READ, TOPIC, mine))
    everything = calls.request(ApiKey.METADATA, 12, MetadataRequest(topics=None))
    assert [each.name for each in everything.topics] == [mine]
    pages = calls.request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, DescribeTopicPartitionsRequest())
    assert [each.name for each in pages.topics] == [mine]
    # READ of the topic, which implies DESCRIBE.
    assert pages.topics[0].topic_authorized_operations == 1 << READ | 1 << DESCRIBE
    allow_rules(node)
    assert calls.request(ApiKey.METADATA, 0, MetadataRequest(topics=[])).topics == []
    assert foreign


def test_metadata_by_name_and_id_does_not_say_what_exists(node: NodeThread, calls: Calls) -> None:
    foreign, missing = calls.create_topic(), fresh_name()
    foreign_id = calls.topic_id(foreign)
    allow_rules(node)
    named = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in (foreign, missing)])
    first, second = calls.request(ApiKey.METADATA, 12, named).topics
    assert (first.error_code, second.error_code) == (NO_TOPIC, NO_TOPIC)
    assert first.topic_id == second.topic_id == UUID(int=0)
    assert first.partitions == second.partitions == []
    by_id = MetadataRequest(topics=[MetadataRequestTopic(topic_id=foreign_id, name=None)])
    (only,) = calls.request(ApiKey.METADATA, 12, by_id).topics
    assert (only.error_code, only.name) == (NO_TOPIC, None)
    assert node.broker.services.image.topic(missing) is None


@pytest.mark.parametrize("resource", [(CLUSTER, CLUSTER_NAME), (TOPIC, None)])
def test_auto_creation_needs_create_on_the_topic_or_the_cluster(
    node: NodeThread, calls: Calls, resource: tuple[AclResourceType, str | None]
) -> None:
    kind, named = resource
    name = fresh_name()
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    for rules in ((), ((CREATE, kind, named or name),), ((DESCRIBE, TOPIC, name),)):
        allow_rules(node, *rules)
        assert by_name(calls.request(ApiKey.METADATA, 9, request).topics) == {name: NO_TOPIC}, rules
        assert node.broker.services.image.topic(name) is None
    allow_rules(node, (DESCRIBE, TOPIC, name), (CREATE, kind, named or name))
    assert by_name(calls.request(ApiKey.METADATA, 9, request).topics) == {name: ErrorCode.NONE}
    assert node.broker.services.image.topic(name) is not None


def test_authorized_operations_are_those_of_the_client(node: NodeThread, calls: Calls) -> None:
    topic = calls.create_topic()

    def cluster(*rules: Rule) -> tuple[int, int]:
        allow_rules(node, *rules)
        asked = MetadataRequest(topics=[], include_cluster_authorized_operations=True)
        described = DescribeClusterRequest(include_cluster_authorized_operations=True)
        answers = calls.request(ApiKey.METADATA, 8, asked), calls.request(ApiKey.DESCRIBE_CLUSTER, 1, described)
        first, second = (each.cluster_authorized_operations for each in answers)
        return first, second

    assert cluster((ALTER, TOPIC, topic)) == (0, 0)
    operations = 1 << ALTER | 1 << DESCRIBE
    assert cluster((ALTER, CLUSTER, CLUSTER_NAME)) == (operations, operations)
    allow_rules(node, (DELETE, TOPIC, topic))
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], include_topic_authorized_operations=True)
    (answer,) = calls.request(ApiKey.METADATA, 8, asked).topics
    assert answer.topic_authorized_operations == 1 << DELETE | 1 << DESCRIBE


@pytest.mark.parametrize("version", [1, 2])
def test_a_controller_describes_itself_to_who_may_alter_the_cluster(node: NodeThread, version: int) -> None:
    request = DescribeClusterRequest(endpoint_type=2)
    with Calls(port_of(node, "controller")) as calls:
        allow_rules(node, (DESCRIBE, CLUSTER, CLUSTER_NAME))
        answer = calls.request(ApiKey.DESCRIBE_CLUSTER, version, request)
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED and not answer.brokers
        allow_rules(node, (ALTER, CLUSTER, CLUSTER_NAME))
        assert calls.request(ApiKey.DESCRIBE_CLUSTER, version, request).brokers


# ---- topics and settings


def test_topics_are_created_grown_and_deleted_one_by_one(node: NodeThread, calls: Calls) -> None:
    mine, foreign = fresh_name(), fresh_name()
    rules: tuple[Rule, ...] = ((CREATE, TOPIC, mine), (ALTER, TOPIC, mine), (DELETE, TOPIC, mine))
    allow_rules(node, *rules)
    creation = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in (foreign, mine)],
        timeout_ms=60_000,
    )
    answer = calls.request(ApiKey.CREATE_TOPICS, 7, creation)
    assert by_name(answer.topics) == {mine: ErrorCode.NONE, foreign: NO_TOPIC}
    hidden = {each.name: each for each in answer.topics}[mine]
    assert (hidden.num_partitions, hidden.replication_factor, hidden.configs) == (-1, -1, None)
    assert hidden.topic_config_error_code == NO_TOPIC
    assert node.broker.services.image.topic(foreign) is None

    remove_authorizer(node)
    calls.create_topic(name=foreign)
    allow_rules(node, *rules)
    growth = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=3, assignments=None) for name in (foreign, mine)],
        timeout_ms=60_000,
    )
    assert by_name(calls.request(ApiKey.CREATE_PARTITIONS, 3, growth).results) == {
        mine: ErrorCode.NONE,
        foreign: NO_TOPIC,
    }

    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in (foreign, mine)], timeout_ms=60_000)
    assert by_name(calls.request(ApiKey.DELETE_TOPICS, 6, deletion).responses) == {
        mine: ErrorCode.NONE,
        foreign: NO_TOPIC,
    }
    assert node.broker.services.image.topic(foreign) is not None


def test_a_refused_deletion_names_the_topic_to_who_may_describe_it(node: NodeThread, calls: Calls) -> None:
    topic = calls.create_topic()
    topic_id = calls.topic_id(topic)
    by_id = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)], timeout_ms=1000)
    named = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=1000)

    def answers() -> list[tuple[str | None, UUID]]:
        found = [calls.request(ApiKey.DELETE_TOPICS, 6, each).responses[0] for each in (by_id, named)]
        assert [each.error_code for each in found] == [NO_TOPIC, NO_TOPIC]
        return [(each.name, each.topic_id) for each in found]

    allow_rules(node)
    assert answers() == [(None, topic_id), (topic, UUID(int=0))]
    allow_rules(node, (DESCRIBE, TOPIC, topic))
    assert answers() == [(topic, topic_id), (topic, topic_id)]


def test_a_topic_that_is_missing_is_so_to_who_may_describe_it(node: NodeThread, calls: Calls) -> None:
    name, unknown = fresh_name(), UUID(int=99)

    def codes(*rules: Rule) -> list[int]:
        allow_rules(node, *rules)
        named = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1000)
        by_id = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=unknown)], timeout_ms=1000)
        return [calls.request(ApiKey.DELETE_TOPICS, 6, each).responses[0].error_code for each in (named, by_id)]

    assert codes() == [NO_TOPIC, ErrorCode.UNKNOWN_TOPIC_ID]
    assert codes((DESCRIBE, TOPIC, name)) == [UNKNOWN, ErrorCode.UNKNOWN_TOPIC_ID]


SETTINGS = {
    2: (TOPIC, None, NO_TOPIC),
    32: (GROUP, None, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    4: (CLUSTER, CLUSTER_NAME, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    8: (CLUSTER, CLUSTER_NAME, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    16: (CLUSTER, CLUSTER_NAME, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
}


@pytest.mark.parametrize("resource_type", SETTINGS, ids=["topic", "group", "broker", "logger", "metrics"])
def test_settings_are_those_of_a_topic_a_group_or_the_cluster(
    node: NodeThread, calls: Calls, resource_type: int
) -> None:
    kind, of, refused = SETTINGS[resource_type]
    name = calls.create_topic() if kind is TOPIC else "1" if resource_type in (4, 8) else fresh_name()
    described = DescribeConfigsResource(resource_type=resource_type, resource_name=name)
    replaced = AlterConfigsResource(resource_type=resource_type, resource_name=name)
    changed = IncrementalResource(resource_type=resource_type, resource_name=name)
    describe = (ApiKey.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=[described]))
    alter = [
        (ApiKey.ALTER_CONFIGS, 2, AlterConfigsRequest(resources=[replaced], validate_only=True)),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest(resources=[changed], validate_only=True)),
    ]

    def refusals(*rules: Rule) -> list[bool]:
        allow_rules(node, *rules)
        return [refused in set(error_codes(calls.request(*asked))) for asked in (describe, *alter)]

    on = (kind, of or name)
    # AlterConfigs changes no logger, and says so before it asks for permissions.
    replaceable = resource_type != 8
    assert refusals((ALTER, *on)) == [True, replaceable, True]
    assert refusals((AclOperation.DESCRIBE_CONFIGS, *on)) == [False, replaceable, True]
    assert refusals((AclOperation.ALTER_CONFIGS, *on)) == [False, False, False]


def test_settings_of_several_resources_change_where_they_may(node: NodeThread, calls: Calls) -> None:
    mine, foreign = calls.create_topic(), calls.create_topic()
    allow_rules(node, (AclOperation.ALTER_CONFIGS, TOPIC, mine))
    changed = [IncrementalResource(resource_type=2, resource_name=name) for name in (foreign, mine)]
    answer = calls.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest(resources=changed))
    assert by_name(answer.responses, "resource_name") == {mine: ErrorCode.NONE, foreign: NO_TOPIC}
    replaced = [AlterConfigsResource(resource_type=2, resource_name=name) for name in (foreign, mine)]
    answer = calls.request(ApiKey.ALTER_CONFIGS, 2, AlterConfigsRequest(resources=replaced))
    assert by_name(answer.responses, "resource_name") == {mine: ErrorCode.NONE, foreign: NO_TOPIC}


# ---- consumer groups


def join(group: str, member: str, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    subscription = {"subscribed_topic_names": None, "subscribed_topic_regex": None} | fields
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        topic_partitions=[],
        **subscription,
    )


def test_a_member_subscribes_to_what_it_may_describe(node: NodeThread, calls: Calls) -> None:
    start = fresh_name("r")
    mine, foreign, group = f"{start}-mine", f"{start}-foreign", fresh_name("g")
    for name in (mine, foreign):
        calls.create_topic(name=name)
    calls.find_coordinator(group)
    allow_rules(node, (READ, GROUP, group), (DESCRIBE, TOPIC, mine))
    named = calls.request(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, join(group, "a", subscribed_topic_names=[mine, foreign]))
    assert named.error_code == NO_TOPIC
    by_expression = join(group, "a", subscribed_topic_regex=f"{start}.*")
    matched = calls.request(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, by_expression)
    assert matched.error_code == ErrorCode.NONE
    image = node.broker.services.image

    def assigned() -> list[str]:
        """An expression counts from the heartbeat after the one that brings it."""
        nonlocal matched
        by_expression.member_epoch = matched.member_epoch
        matched = calls.request(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, by_expression)
        assert matched.error_code == ErrorCode.NONE
        topics = matched.assignment.topic_partitions if matched.assignment is not None else []
        return [image.topics_by_id[each.topic_id].name for each in topics]

    assert eventually(assigned) == [mine]
    # Permissions that change are seen without a change of topics.
    allow_rules(node, (READ, GROUP, group), (DESCRIBE, TOPIC, mine), (DESCRIBE, TOPIC, foreign))
    eventually(lambda: sorted(assigned()) == sorted([mine, foreign]))
    allow_rules(node, (READ, GROUP, group), (DESCRIBE, TOPIC, mine))
    eventually(lambda: assigned() == [mine])

    describe = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=True)
    (found,) = calls.request(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, describe).groups
    assert found.error_code == ErrorCode.NONE
    assert found.authorized_operations == 1 << READ | 1 << DESCRIBE
    allow_rules(node, (READ, GROUP, group))
    (found,) = calls.request(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, describe).groups
    assert found.error_code == NO_TOPIC and not found.members
