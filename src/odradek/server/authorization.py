"""What handlers ask before they do something, where an authorizer is set: may this client?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from odradek.common.errors import ApiError, ErrorCode
from odradek.metadata.acls import CLUSTER_NAME, AclOperation, AclResourceType
from odradek.protocol.apis import ApiKey

if TYPE_CHECKING:
    from odradek.security.acl.authorizer import StandardAuthorizer
    from odradek.server.context import RequestContext

# What a client must be allowed to do to the cluster for a whole request of these APIs; `dispatch` asks before the
# handler is called. All other handlers ask themselves, as they have a place in their answers for each refusal.
CLUSTER_NEEDS: Mapping[ApiKey, AclOperation] = MappingProxyType(
    {
        ApiKey.ENVELOPE: AclOperation.CLUSTER_ACTION,
        ApiKey.BROKER_REGISTRATION: AclOperation.CLUSTER_ACTION,
        ApiKey.BROKER_HEARTBEAT: AclOperation.CLUSTER_ACTION,
        ApiKey.CONTROLLER_REGISTRATION: AclOperation.CLUSTER_ACTION,
        ApiKey.ALLOCATE_PRODUCER_IDS: AclOperation.CLUSTER_ACTION,
        ApiKey.ALTER_PARTITION: AclOperation.CLUSTER_ACTION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS: AclOperation.CLUSTER_ACTION,
        ApiKey.VOTE: AclOperation.CLUSTER_ACTION,
        ApiKey.BEGIN_QUORUM_EPOCH: AclOperation.CLUSTER_ACTION,
        ApiKey.END_QUORUM_EPOCH: AclOperation.CLUSTER_ACTION,
        ApiKey.FETCH_SNAPSHOT: AclOperation.CLUSTER_ACTION,
        ApiKey.UPDATE_RAFT_VOTER: AclOperation.CLUSTER_ACTION,
        ApiKey.DESCRIBE_QUORUM: AclOperation.DESCRIBE,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: AclOperation.DESCRIBE,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: AclOperation.DESCRIBE,
        ApiKey.DESCRIBE_CLIENT_QUOTAS: AclOperation.DESCRIBE_CONFIGS,
        ApiKey.LIST_CONFIG_RESOURCES: AclOperation.DESCRIBE_CONFIGS,
        ApiKey.UNREGISTER_BROKER: AclOperation.ALTER,
        ApiKey.UPDATE_FEATURES: AclOperation.ALTER,
        ApiKey.ADD_RAFT_VOTER: AclOperation.ALTER,
        ApiKey.REMOVE_RAFT_VOTER: AclOperation.ALTER,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: AclOperation.ALTER,
    }
)

# The same for the one resource that a request names: operation, type, and the field with the name.
NAMED_NEEDS: Mapping[ApiKey, tuple[AclOperation, AclResourceType, str]] = MappingProxyType(
    {
        ApiKey.JOIN_GROUP: (AclOperation.READ, AclResourceType.GROUP, "group_id"),
        ApiKey.SYNC_GROUP: (AclOperation.READ, AclResourceType.GROUP, "group_id"),
        ApiKey.HEARTBEAT: (AclOperation.READ, AclResourceType.GROUP, "group_id"),
        ApiKey.LEAVE_GROUP: (AclOperation.READ, AclResourceType.GROUP, "group_id"),
        ApiKey.END_TXN: (AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, "transactional_id"),
        ApiKey.ADD_OFFSETS_TO_TXN: (AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, "transactional_id"),
    }
)
REFUSALS: Mapping[AclResourceType, ErrorCode] = MappingProxyType(
    {
        AclResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        AclResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
        AclResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        AclResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


def request_check(api_key: ApiKey) -> Callable[[RequestContext, Any], None] | None:
    """What raises where a client may not have a request of this API answered at all; None where handlers ask."""
    needs = CLUSTER_NEEDS.get(api_key)
    if needs is not None:
        return lambda context, request: check_cluster(context, needs)
    named = NAMED_NEEDS.get(api_key)
    if named is not None:
        operation, resource_type, field = named
        return lambda context, request: check(context, operation, resource_type, getattr(request, field))
    return None


def check(context: RequestContext, operation: AclOperation, resource_type: AclResourceType, name: str) -> None:
    """
    Raises:
        ApiError: the code of the resource's type.
    """
    if not context.authorize(operation, resource_type, name):
        raise ApiError(REFUSALS[resource_type])


def allowed_operations(context: RequestContext, resource_type: AclResourceType, name: str, operations: int) -> int:
    """Those of some operations (a bit for each) that the client may do."""
    if context.broker.authorizer is None:
        return operations
    bits = [each for each in AclOperation if operations >> each & 1]
    return sum(1 << each for each in bits if context.authorize(each, resource_type, name))


def may_on_cluster(context: RequestContext, operation: AclOperation) -> bool:
    """Whether the client may do it to the cluster."""
    return context.authorize(operation, AclResourceType.CLUSTER, CLUSTER_NAME)


def check_cluster(context: RequestContext, operation: AclOperation) -> None:
    """
    Raises:
        ApiError: CLUSTER_AUTHORIZATION_FAILED.
    """
    if not may_on_cluster(context, operation):
        text = f"{context.principal} may not {operation.name} the cluster"
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, text)


def check_acls(context: RequestContext, operation: AclOperation) -> StandardAuthorizer:
    """What decides, where this client may see or change the entries by which it does.

    Raises:
        ApiError: CLUSTER_AUTHORIZATION_FAILED, or SECURITY_DISABLED where nothing decides.
    """
    check_cluster(context, operation)
    if context.broker.authorizer is None:
        raise ApiError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    return context.broker.authorizer
