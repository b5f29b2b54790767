"""What handlers ask before they do something, where an authorizer is set: may this client?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.common.errors import ApiError, ErrorCode
from odradek.metadata.acls import CLUSTER_NAME, AclOperation, AclResourceType

if TYPE_CHECKING:
    from odradek.security.acl.authorizer import StandardAuthorizer
    from odradek.server.context import RequestContext


def check_cluster(context: RequestContext, operation: AclOperation) -> None:
    """
    Raises:
        ApiError: CLUSTER_AUTHORIZATION_FAILED.
    """
    if not context.authorize(operation, AclResourceType.CLUSTER, CLUSTER_NAME):
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
