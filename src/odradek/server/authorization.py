"""What handlers ask before they do something, where an authorizer is set: may this client?"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

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
        ApiKey.LIST_CONFIG_RESOURCES: AclOperation.DESCRIBE_CONFIGS,
        ApiKey.UNREGISTER_BROKER: AclOperation.ALTER,
        ApiKey.UPDATE_FEATURES: AclOperation.ALTER,
        ApiKey.ADD_RAFT_VOTER: AclOperation.ALTER,
        ApiKey.REMOVE_RAFT_VOTER: AclOperation.ALTER,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: AclOperation.ALTER,
    }
)


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
