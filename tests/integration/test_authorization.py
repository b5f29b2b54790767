"""Each API and a client that may do nothing, describe, or all; a handler that checks nothing must say so here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ErrorCode
from odradek.metadata.acls import AclOperation, AclResourceType, PatternType, PermissionType
from odradek.metadata.model import Acl
from odradek.protocol.apis import API, ApiKey
from odradek.protocol.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from odradek.protocol.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from odradek.protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from odradek.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.security.acl.authorizer import StandardAuthorizer
from odradek.server.authorization import CLUSTER_NEEDS
from odradek.server.context import ANONYMOUS
from odradek.server.handlers import HANDLERS, fetch_metadata
from odradek.server.network.dispatch import Handler
from odradek.testing.faults import NetworkLinks
from odradek.testing.node_thread import NodeThread
from tests.support.clients.api_calls import Calls

pytestmark = pytest.mark.only_ours

# Answered to everybody, as in Kafka: what a client needs before it can be known.
OPEN = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
# Tested with ACLs of their own, in test_api_acls.
OF_ACLS = {ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS}
# Checked by their handlers, on the cluster as a whole: what is asked, and the operation that is needed.
OF_THE_CLUSTER: dict[ApiKey, tuple[AclOperation, Any]] = {
    ApiKey.ELECT_LEADERS: (
        AclOperation.ALTER,
        ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[0])], timeout_ms=1000),
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (
        AclOperation.ALTER,
        AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name="a", mechanism=1)]),
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (
        AclOperation.ALTER,
        AlterReplicaLogDirsRequest(
            dirs=[AlterReplicaLogDir(path="/none", topics=[AlterReplicaLogDirTopic(name="t", partitions=[0])])]
        ),
    ),
    ApiKey.DESCRIBE_LOG_DIRS: (AclOperation.DESCRIBE, None),
    ApiKey.WRITE_TXN_MARKERS: (
        AclOperation.CLUSTER_ACTION,
        WriteTxnMarkersRequest(
            markers=[WritableTxnMarker(topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])])]
        ),
    ),
}
# These ask nothing yet; while one is here, a node does not take the setting of an authorizer.
UNCHECKED = {
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.DELETE_RECORDS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.DELETE_GROUPS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.OFFSET_DELETE,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
}
CHECKED = {*CLUSTER_NEEDS, *OF_THE_CLUSTER}


def test_every_handler_is_in_one_of_the_tables() -> None:
    tables = [OPEN, OF_ACLS, UNCHECKED, set(CLUSTER_NEEDS), set(OF_THE_CLUSTER)]
    assert {handler.api_key for handler in HANDLERS} - set().union(*tables) == set(), "a handler that checks nothing"
    assert sum(map(len, tables)) == len(set().union(*tables))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeThread]:
    node = NodeThread(1, NetworkLinks())
    node.begin(None, [f"log.dirs={tmp_path_factory.mktemp('node')}"]).result(120)
    try:
        yield node
    finally:
        node.stop()


def allow(node: NodeThread, *operations: AclOperation) -> None:
    """Let everybody who is here do so much to the cluster, and nothing else."""
    authorizer = StandardAuthorizer()
    kind, literal, allowed = int(AclResourceType.CLUSTER), int(PatternType.LITERAL), int(PermissionType.ALLOW)
    authorizer.update(
        {
            UUID(int=number): Acl(kind, "kafka-cluster", literal, ANONYMOUS, "*", int(operation), allowed)
            for number, operation in enumerate(operations)
        }
    )

    async def install() -> None:
        node.broker.services.authorizer = authorizer

    node.call(install())


def codes(answer: Any) -> set[int]:
    """All error codes of an answer."""
    found = {answer.error_code} if hasattr(answer, "error_code") else set()
    for spec in answer.FIELDS:
        value = getattr(answer, spec.name)
        for each in value if isinstance(value, list) else ():
            if hasattr(each, "FIELDS"):
                found |= codes(each)
    return found


def is_refused(node: NodeThread, handler: Handler, version: int) -> bool:
    given = OF_THE_CLUSTER.get(handler.api_key, (None, None))[1]
    scope = "broker" if "broker" in handler.listeners else "controller"
    port = next(spec.port for spec in node.broker.specs.values() if spec.scope == scope)
    with Calls(port) as calls:
        answer = calls.ask(handler.api_key, version, given or API[handler.api_key].request())
    if handler.api_key == ApiKey.DESCRIBE_LOG_DIRS and version < 3:  # no place for an error
        return not answer.results
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED in codes(answer)


@pytest.mark.parametrize(
    "handler",
    [each for each in HANDLERS if each.api_key in CHECKED or each.handle is fetch_metadata.handle],
    ids=lambda handler: handler.api_key.name,
)
def test_who_may_do_it_to_the_cluster(node: NodeThread, handler: Handler) -> None:
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
