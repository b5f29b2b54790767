"""Permission checks of handlers, if an authorizer is set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from odradek.common.errors import ApiError, ErrorCode
from odradek.metadata.acls import CLUSTER_NAME, AclOperation, AclResourceType
from odradek.metadata.model import ResourceType
from odradek.protocol.apis import ApiKey

if TYPE_CHECKING:
    from odradek.security.acl.authorizer import StandardAuthorizer
    from odradek.server.context import RequestContext

# The operation on the cluster that a request of these APIs needs; `dispatch` checks it before it calls the handler. All
# other handlers check themselves, because their responses have an error code for each resource.
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
# All that can be done to a resource of a type, as bits of AclOperation: of a cluster, a topic, a group.
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))

REFUSALS: Mapping[AclResourceType, ErrorCode] = MappingProxyType(
    {
        AclResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        AclResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
        AclResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        AclResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


# Kafka's messages for the codes, in responses that have a message.
TOPIC_REFUSED, GROUP_REFUSED = "Topic authorization failed.", "Group authorization failed."


def request_check(api_key: ApiKey) -> Callable[[RequestContext, Any], None] | None:
    """The check of whole requests of this API; None if its handler checks."""
    needs = CLUSTER_NEEDS.get(api_key)
    if needs is not None:
        return lambda context, request: check_cluster(context, needs)
    named = NAMED_NEEDS.get(api_key)
    if named is not None:
        operation, resource_type, field = named
        return lambda context, request: check(context, operation, resource_type, getattr(request, field))
    return None


def refusal(
    context: RequestContext, operation: AclOperation, resource_type: AclResourceType, name: str
) -> ErrorCode | None:
    """The error code of the resource type if the client is denied, None if it is allowed."""
    return None if context.authorize(operation, resource_type, name) else REFUSALS[resource_type]


def check(
    context: RequestContext, operation: AclOperation, resource_type: AclResourceType, name: str, text: str = ""
) -> None:
    """
    Raises:
        ApiError: the code of the resource's type, with that text.
    """
    if not context.authorize(operation, resource_type, name):
        raise ApiError(REFUSALS[resource_type], text)


def check_configs(context: RequestContext, operation: AclOperation, resource_type: int, name: str) -> None:
    """Whether the client may see or alter the settings of a resource: those of brokers are the cluster's.

    Raises:
        ApiError: the code of the resource's type.
    """
    if resource_type == ResourceType.TOPIC:
        check(context, operation, AclResourceType.TOPIC, name, TOPIC_REFUSED)
    elif resource_type == ResourceType.GROUP:
        check(context, operation, AclResourceType.GROUP, name, GROUP_REFUSED)
    else:
        check_cluster(context, operation)


def allowed_operations(context: RequestContext, resource_type: AclResourceType, name: str, operations: int) -> int:
    """The operations among the given ones (a bit for each) that the client may do."""
    if context.broker.authorizer is None:
        return operations
    bits = [each for each in AclOperation if operations >> each & 1]
    return sum(1 << each for each in bits if context.is_allowed(each, resource_type, name))


def cluster_operations(context: RequestContext) -> int:
    """The authorized operations of the client on the cluster, a bit for each; 0 if it may not describe the cluster."""
    if not context.is_allowed(AclOperation.DESCRIBE, AclResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return allowed_operations(context, AclResourceType.CLUSTER, CLUSTER_NAME, CLUSTER_OPERATIONS)


def may_describe(context: RequestContext, topic: str) -> bool:
    """Whether the client may know of a topic that it names."""
    return context.authorize(AclOperation.DESCRIBE, AclResourceType.TOPIC, topic)


def is_listed(context: RequestContext, topic: str) -> bool:
    """Whether a topic is in the client's listings: one that it did not name and may not describe is left out."""
    return context.is_allowed(AclOperation.DESCRIBE, AclResourceType.TOPIC, topic)


def may_read(context: RequestContext, topic: str) -> bool:
    """Whether the client may read a topic."""
    return context.authorize(AclOperation.READ, AclResourceType.TOPIC, topic)


def check_may_read(context: RequestContext, topic: str, decided: dict[str, bool]) -> None:
    """Whether the client may read a topic: asked once for each topic of a request, which `decided` belongs to.

    Raises:
        ApiError: TOPIC_AUTHORIZATION_FAILED.
    """
    if topic not in decided:
        decided[topic] = may_read(context, topic)
    if not decided[topic]:
        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def may_on_cluster(context: RequestContext, operation: AclOperation) -> bool:
    """Whether the client may do it to the cluster."""
    return context.authorize(operation, AclResourceType.CLUSTER, CLUSTER_NAME)


def may_here_or_everywhere(
    context: RequestContext, operation: AclOperation, resource_type: AclResourceType, name: str
) -> bool:
    """Whether the client may do it to the whole cluster, or else to one resource of it."""
    if context.is_allowed(operation, AclResourceType.CLUSTER, CLUSTER_NAME):
        return may_on_cluster(context, operation)  # now for the audit log
    return context.authorize(operation, resource_type, name)


def may_act_as_broker(context: RequestContext) -> bool:
    """Whether a request may be one that brokers send to each other.

    With an authorizer the sender needs ClusterAction, on any listener: brokers come by another one while a cluster is
    moved to a secured listener. Without one all that is known is the listener, `inter.broker.listener.name`.
    """
    if context.broker.authorizer is None:
        return context.on_inter_broker_listener
    return may_on_cluster(context, AclOperation.CLUSTER_ACTION)


def check_cluster(context: RequestContext, operation: AclOperation) -> None:
    """
    Raises:
        ApiError: CLUSTER_AUTHORIZATION_FAILED.
    """
    if not may_on_cluster(context, operation):
        text = f"{context.principal} may not {operation.name} the cluster"
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, text)


def check_acls(context: RequestContext, operation: AclOperation) -> StandardAuthorizer:
    """The authorizer, if this client may describe or alter its ACLs.

    Raises:
        ApiError: CLUSTER_AUTHORIZATION_FAILED, or SECURITY_DISABLED if there is no authorizer.
    """
    check_cluster(context, operation)
    if context.broker.authorizer is None:
        raise ApiError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    return context.broker.authorizer
