"""CreateAcls, DescribeAcls, DeleteAcls by a stock client: with an authorizer, without one, and by who may not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from odradek.common.errors import ErrorCode
from odradek.metadata.acls import AclOperation as Op
from odradek.metadata.acls import AclResourceType, PatternType, PermissionType
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
from odradek.protocol.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from odradek.protocol.messages.describe_acls_request import DescribeAclsRequest
from odradek.security.acl.authorizer import StandardAuthorizer
from odradek.testing.node_thread import NodeThread
from tests.support.clients.api_calls import Calls
from tests.support.clients.confluent import admin
from tests.support.nodes.node import Node
from tests.support.nodes.permissions import node_in_process

pytestmark = pytest.mark.only_ours

_NONE: Any = None  # the client's types leave it out
EVERYTHING = AclBindingFilter(
    ResourceType.ANY, _NONE, ResourcePatternType.ANY, _NONE, _NONE, AclOperation.ANY, AclPermissionType.ANY
)


@pytest.fixture
def node_thread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeThread]:
    with node_in_process(tmp_path_factory.mktemp("node")) as node:
        yield node


def guard(node: NodeThread, *super_users: str) -> StandardAuthorizer:
    authorizer = StandardAuthorizer(super_users)

    async def install() -> None:
        node.broker.publisher.subscribe(authorizer.on_metadata)
        node.broker.services.authorizer = authorizer

    node.call(install())
    return authorizer


def binding(name: str = "t", pattern: ResourcePatternType = ResourcePatternType.LITERAL) -> AclBinding:
    return AclBinding(ResourceType.TOPIC, name, pattern, "User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW)


def port_of(node: NodeThread) -> int:
    return int(node.broker.bootstrap_address().rpartition(":")[2])


def describe_code(port: int) -> int:
    """The error code of DescribeAcls; the stock client returns an empty list for every error."""
    asked = DescribeAclsRequest(
        resource_type_filter=AclResourceType.ANY,
        pattern_type_filter=PatternType.ANY,
        operation=Op.ANY,
        permission_type=PermissionType.ANY,
    )
    with Calls(port) as calls:
        return int(calls.request(ApiKey.DESCRIBE_ACLS, 3, asked).error_code)


def test_a_stock_client_creates_describes_and_deletes(node_thread: NodeThread) -> None:
    authorizer = guard(node_thread, "User:ANONYMOUS")
    client = admin(node_thread.broker.bootstrap_address())
    asked = ("User:alice", "127.0.0.1", int(Op.READ), int(AclResourceType.TOPIC))
    assert not authorizer.authorize(*asked, "t")

    wanted = [binding("t"), binding("team-", ResourcePatternType.PREFIXED)]
    for future in client.create_acls(wanted).values():
        future.result(60)
    # The node that has answered authorizes by the new ACLs at once.
    assert authorizer.authorize(*asked, "t") and authorizer.authorize(*asked, "team-a")
    assert sorted(client.describe_acls(EVERYTHING).result(60)) == sorted(wanted)

    (deleted,) = client.delete_acls([EVERYTHING]).values()
    assert sorted(deleted.result(60)) == sorted(wanted)
    assert not authorizer.authorize(*asked, "t")
    assert client.describe_acls(EVERYTHING).result(60) == []


def test_a_user_without_permission_changes_and_sees_no_acl(node_thread: NodeThread) -> None:
    guard(node_thread, "User:admin")
    client = admin(node_thread.broker.bootstrap_address())
    (created,) = client.create_acls([binding()]).values()
    (deleted,) = client.delete_acls([EVERYTHING]).values()
    for future in (created, deleted):
        with pytest.raises(KafkaException) as error:
            future.result(60)
        assert error.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    assert describe_code(port_of(node_thread)) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert not node_thread.broker.services.image.acls


def test_without_an_authorizer_there_are_none(node: Node) -> None:
    client = admin(node.bootstrap)
    (created,) = client.create_acls([binding()]).values()
    (deleted,) = client.delete_acls([EVERYTHING]).values()
    for future in (created, deleted):
        with pytest.raises(KafkaException) as error:
            future.result(60)
        assert error.value.args[0].code() == KafkaError.SECURITY_DISABLED
    assert describe_code(node.port) == ErrorCode.SECURITY_DISABLED


@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_version_says_what_is_wrong_with_each(node_thread: NodeThread, version: int) -> None:
    guard(node_thread, "User:ANONYMOUS")
    good = AclCreation(
        resource_type=AclResourceType.GROUP,
        resource_name="g",
        resource_pattern_type=PatternType.LITERAL,
        principal="User:*",
        host="10.0.0.0/8",
        operation=Op.ALL,
        permission_type=PermissionType.DENY,
    )
    bad = AclCreation(resource_type=AclResourceType.CLUSTER, resource_name="x")
    with Calls(port_of(node_thread)) as calls:
        answer = calls.request(ApiKey.CREATE_ACLS, version, CreateAclsRequest(creations=[good, bad]))
        assert [each.error_code for each in answer.results] == [0, ErrorCode.INVALID_REQUEST]
        unknown = DescribeAclsRequest(operation=0)
        assert calls.request(ApiKey.DESCRIBE_ACLS, version, unknown).error_code == ErrorCode.INVALID_REQUEST
        anything: dict[str, Any] = {
            "resource_type_filter": 1,
            "pattern_type_filter": 1,
            "operation": 1,
            "permission_type": 1,
        }
        nulls: dict[str, Any] = {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
        (found,) = calls.request(ApiKey.DESCRIBE_ACLS, version, DescribeAclsRequest(**anything, **nulls)).resources
        assert (found.resource_name, found.acls[0].host) == ("g", "10.0.0.0/8")
        filters = [DeleteAclsFilter(**anything, **nulls), DeleteAclsFilter()]
        answer = calls.request(ApiKey.DELETE_ACLS, version, DeleteAclsRequest(filters=filters))
        assert [each.error_code for each in answer.filter_results] == [0, ErrorCode.INVALID_REQUEST]
        assert [each.resource_name for each in answer.filter_results[0].matching_acls] == ["g"]
