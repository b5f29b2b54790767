"""Each API and a client that may do nothing, describe, or all; a handler that checks nothing must say so here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ErrorCode
from odradek.metadata.acls import CLUSTER_NAME, AclOperation, AclResourceType
from odradek.metadata.model import ResourceType
from odradek.protocol.apis import API, ApiKey
from odradek.protocol.declare import Message
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.protocol.messages.list_transactions_request import ListTransactionsRequest
from odradek.security.acl.authorizer import MAX_KEPT_BY_CLIENT, StandardAuthorizer
from odradek.server.authorization import CLUSTER_NEEDS, NAMED_NEEDS, REFUSALS
from odradek.server.handlers import HANDLERS, fetch_metadata
from odradek.server.network.dispatch import Handler
from odradek.testing.node_thread import NodeThread
from tests.support.clients.api_calls import NO_ID, Calls, batch, error_codes
from tests.support.clients.needed_operations import OF_NAMED, OF_THE_CLUSTER, commit_of
from tests.support.nodes.permissions import allow_rules, node_in_process, port_of, remove_authorizer

pytestmark = pytest.mark.only_ours

# Requests that are served without authorization, as in Kafka, because a client needs them before its login.
OPEN = {
    ApiKey.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
}
# Tested with ACLs of their own, in test_api_acls.
OF_ACLS = {ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS}
# Their responses leave out what a client may not describe.
LISTINGS = {ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS}
# Only owners and renewers of a token renew and expire it (test_acl_tokens); no ACL allows it to others.
OF_HOLDERS = {
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
}
# The permission that they need depends on the version or the listener: each has a test of its own below.
OF_THEIR_OWN = {ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.DESCRIBE_CLUSTER}
_TOPIC, _GROUP, _ID = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.TRANSACTIONAL_ID
CHECKED = {*CLUSTER_NEEDS, *OF_THE_CLUSTER}


def test_every_handler_is_in_one_of_the_tables() -> None:
    tables = [OPEN, OF_ACLS, OF_HOLDERS, OF_THEIR_OWN, LISTINGS, set(CLUSTER_NEEDS), set(OF_THE_CLUSTER), set(OF_NAMED)]
    assert {handler.api_key for handler in HANDLERS} - set().union(*tables) == set(), "a handler that checks nothing"
    assert set(NAMED_NEEDS) <= set(OF_NAMED)
    assert sum(map(len, tables)) == len(set().union(*tables))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeThread]:
    with node_in_process(tmp_path_factory.mktemp("node")) as node:
        yield node


def allow(
    node: NodeThread,
    *operations: AclOperation,
    kind: AclResourceType = AclResourceType.CLUSTER,
    name: str = CLUSTER_NAME,
) -> None:
    """Let everybody who is here do so much to one resource, and nothing else."""
    allow_rules(node, *((operation, kind, name) for operation in operations))


def id_of_x(node: NodeThread) -> UUID:
    """The id of the topic "x", which is made where it is not there."""
    topic = node.broker.services.image.topic("x")
    if topic is None:
        remove_authorizer(node)
        with Calls(port_of(node)) as calls:
            calls.create_topic(name="x")
        topic = node.broker.services.image.topic("x")
        assert topic is not None
    return topic.topic_id


def is_of_named(handler: Handler) -> bool:
    """Whether it is among those of OF_NAMED, which are served to clients."""
    return handler.api_key in OF_NAMED and "broker" in handler.listeners


def is_refused(node: NodeThread, handler: Handler, version: int, topic_id: UUID = NO_ID) -> bool:
    given: Any = None
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if handler.api_key in OF_THE_CLUSTER:
        given = OF_THE_CLUSTER[handler.api_key][1]
    elif is_of_named(handler):
        _, kind, given = OF_NAMED[handler.api_key]
        given = given(version, topic_id) if callable(given) else given
        code = REFUSALS[kind]
    scope = "broker" if "broker" in handler.listeners else "controller"
    with Calls(port_of(node, scope)) as calls:
        answer = calls.request(handler.api_key, version, given or API[handler.api_key].request())
    if handler.api_key == ApiKey.DESCRIBE_LOG_DIRS and version < 3:  # no place for an error
        return not answer.results
    return code in set(error_codes(answer))


@pytest.mark.parametrize(
    "handler",
    [each for each in HANDLERS if each.api_key in CHECKED or each.handle is fetch_metadata.handle],
    ids=lambda handler: handler.api_key.name,
)
def test_the_cluster_operation_that_each_api_needs(node: NodeThread, handler: Handler) -> None:
    needed = CLUSTER_NEEDS.get(handler.api_key)
    if needed is None:
        needed = OF_THE_CLUSTER.get(handler.api_key, (AclOperation.CLUSTER_ACTION,))[0]
    for version in range(handler.min_version, handler.max_version + 1):
        allow(node)
        assert is_refused(node, handler, version), version
        allow(node, AclOperation.DESCRIBE)
        assert is_refused(node, handler, version) == (needed != AclOperation.DESCRIBE), version
        allow(node, needed)
        assert not is_refused(node, handler, version), version
    allow(node, AclOperation.ALL)
    assert not is_refused(node, handler, handler.max_version)


@pytest.mark.parametrize(
    "handler", [each for each in HANDLERS if is_of_named(each)], ids=lambda handler: handler.api_key.name
)
def test_the_operation_that_each_api_needs_on_what_it_names(node: NodeThread, handler: Handler) -> None:
    needed, kind, _ = OF_NAMED[handler.api_key]
    for version in range(handler.min_version, handler.max_version + 1):
        topic_id = id_of_x(node)
        allow(node)
        assert is_refused(node, handler, version, topic_id), version
        allow(node, needed, kind=kind, name="y")
        assert is_refused(node, handler, version, topic_id), version
        allow(node, AclOperation.DESCRIBE, kind=kind, name="x")
        assert is_refused(node, handler, version, topic_id) == (needed != AclOperation.DESCRIBE), version
        allow(node, needed, kind=kind, name="x")
        assert not is_refused(node, handler, version, topic_id), version
    topic_id = id_of_x(node)
    allow(node, AclOperation.ALL, kind=kind, name="x")
    assert not is_refused(node, handler, handler.max_version, topic_id)


def test_an_idempotent_producer_needs_some_topic_or_the_cluster(node: NodeThread) -> None:
    with Calls(port_of(node)) as calls:

        def code() -> int:
            return int(
                calls.request(ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id=None)).error_code
            )

        allow(node)
        assert code() == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        allow(node, AclOperation.READ, kind=_TOPIC, name="x")
        assert code() == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        allow(node, AclOperation.WRITE, kind=_TOPIC, name="x")
        assert code() == ErrorCode.NONE
        allow(node, AclOperation.IDEMPOTENT_WRITE)
        assert code() == ErrorCode.NONE


def test_listings_have_what_may_be_described(node: NodeThread) -> None:
    remove_authorizer(node)
    with Calls(port_of(node)) as calls:
        for group in ("x", "y"):
            topic = calls.create_topic()
            calls.find_coordinator(group)
            calls.request_until_loaded(ApiKey.OFFSET_COMMIT, 8, commit_of(group, topic))
            # The first question makes the topic of the transactions.
            found = FindCoordinatorRequest(key_type=1, coordinator_keys=[group])
            calls.request_until_loaded(ApiKey.FIND_COORDINATOR, 4, found)
            asked = InitProducerIdRequest(transactional_id=group, transaction_timeout_ms=1000)
            calls.request_until_loaded(ApiKey.INIT_PRODUCER_ID, 4, asked)

        def listed() -> tuple[set[str], set[str]]:
            groups = calls.request(ApiKey.LIST_GROUPS, 5, ListGroupsRequest()).groups
            states = calls.request(ApiKey.LIST_TRANSACTIONS, 1, ListTransactionsRequest()).transaction_states
            return {each.group_id for each in groups}, {each.transactional_id for each in states}

        assert listed() == ({"x", "y"}, {"x", "y"})
        allow(node)
        assert listed() == (set(), set())
        allow(node, AclOperation.READ, kind=_GROUP, name="x")
        assert listed() == ({"x"}, set())
        allow(node, AclOperation.WRITE, kind=_ID, name="y")
        assert listed() == (set(), {"y"})
        allow(node, AclOperation.DESCRIBE)  # of the cluster: all groups
        assert listed() == ({"x", "y"}, set())


def test_a_change_is_in_force_for_open_connections(node: NodeThread) -> None:
    """Be it of one authorizer, or another authorizer in its place; also where a client asks for many resources."""
    remove_authorizer(node)
    with Calls(port_of(node)) as calls:
        topic = calls.create_topic()
        may_do_both = [(each, AclResourceType.TOPIC, topic) for each in (AclOperation.WRITE, AclOperation.READ)]
        allowed, refused = [0, 0], [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2

        def write_and_read() -> list[int]:
            return [calls.produce(topic, batch(b"x")).error_code, calls.read(topic).error_code]

        for _ in range(2):
            allow_rules(node, *may_do_both)
            assert [write_and_read(), write_and_read()] == [allowed, allowed]
            for number in range(MAX_KEPT_BY_CLIENT + 1):
                calls.produce(f"absent-{number}", batch(b"x"))
            assert write_and_read() == allowed
            allow_rules(node)
            assert write_and_read() == refused
            allow_rules(node, *may_do_both)
            assert write_and_read() == allowed
            allow_rules(node, may_do_both[0])
            assert write_and_read() == [0, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
            remove_authorizer(node)
            assert write_and_read() == allowed
        allow_rules(node, *may_do_both)
        assert write_and_read() == allowed
        remove_authorizer(node)
        allow_rules(node)
        assert write_and_read() == refused
    remove_authorizer(node)


def test_a_controller_without_permissions_is_no_controller_yet(node: NodeThread) -> None:
    """A starting controller could only deny, and a node with all permissions would take that for a final answer."""

    async def install() -> None:
        node.broker.services.authorizer = StandardAuthorizer(["User:admin"])

    node.call(install())
    with Calls(port_of(node, "controller")) as calls:
        answer = calls.request(ApiKey.DESCRIBE_QUORUM, 2, API[ApiKey.DESCRIBE_QUORUM].request())
        assert answer.error_code == ErrorCode.NOT_CONTROLLER


# The error messages are those of Apache Kafka 4.3.1. For the cluster its message is that authorization failed, the
# request as Java prints it, or empty: ours names the principal and the operation.
_KINDS = (ResourceType.TOPIC, ResourceType.GROUP)
_SETTING = AlterableConfig(name="a", value="b")
_READ = [DescribeConfigsResource(resource_type=kind, resource_name="x") for kind in _KINDS]
_ALTERED = [AlterConfigsResource(resource_type=kind, resource_name="x", configs=[_SETTING]) for kind in _KINDS]
_OF_TOPIC, _OF_GROUP = "Topic authorization failed.", "Group authorization failed."
SAID: list[tuple[ApiKey, Message, set[str]]] = [
    (ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=[CreatableTopic(name="new")]), {"Authorization failed."}),
    (ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topics=[DeleteTopicState(name="x")]), {_OF_TOPIC}),
    (ApiKey.DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=_READ), {_OF_TOPIC, _OF_GROUP}),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest(resources=_ALTERED), {_OF_TOPIC, _OF_GROUP}),
    (
        ApiKey.DESCRIBE_PRODUCERS,
        DescribeProducersRequest(topics=[TopicRequest(name="x", partition_indexes=[0])]),
        {_OF_TOPIC},
    ),
]


def messages_of(answer: Any) -> set[str]:
    """All error messages in an answer."""
    found = set()
    for spec in type(answer).FIELDS:
        value = getattr(answer, spec.name)
        if spec.name == "error_message" and value:
            found.add(value)
        for each in value if isinstance(value, list) else ():
            found |= messages_of(each) if isinstance(each, Message) else set()
    return found


@pytest.mark.parametrize(("api_key", "request_", "said"), SAID, ids=[key.name for key, *_ in SAID])
def test_messages_of_refused_requests(node: NodeThread, api_key: ApiKey, request_: Any, said: set[str]) -> None:
    allow(node)
    with Calls(port_of(node, "broker")) as calls:
        assert messages_of(calls.request(api_key, API[api_key].max_version, request_)) == said
